"""`sluice health` says by exit code and one line whether the running Sluice works."""

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluice_cli.root import cli
from tests.support.ports import free_port
from tests.support.tls.certificates import Authority

NO_ADDRESS = 'write address = "127.0.0.1:9644" below [admin]'


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers `/healthz` with the status code and the text of its server."""

    def do_GET(self) -> None:
        assert self.path == "/healthz"
        status, text = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def admin_port(status: int, text: str, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve health for a block; yield the port."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        server.answer = status, text  # type: ignore[attr-defined]
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def health(folder: Path, text: str, *options: str, **environment: str) -> Result:
    """Run the command with a configuration file of this text."""
    (folder / "sluice.toml").write_text(text)
    return CliRunner().invoke(cli, ["health", "--config", str(folder / "sluice.toml"), *options], env=environment)


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (200, "ok\n", (0, "healthy: http://127.0.0.1:{}\n")),
        (503, "120 internal errors within 60 s\n", (1, "unhealthy: http://127.0.0.1:{}: 120 internal errors within 60 s\n")),
        (503, "", (1, "unhealthy: http://127.0.0.1:{}: status 503\n")),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_what_the_admin_port_says_is_printed(tmp_path: Path, status: int, text: str, said: tuple[int, str], host: str) -> None:
    """Status 200 is exit code 0, each other one exit code 1 with its reason; a port on all addresses is asked on loopback."""
    with admin_port(status, text) as port:
        result = health(tmp_path, f'[admin]\naddress = "{host}:{port}"\n', http_proxy="http://127.0.0.1:1")
    assert (result.exit_code, result.output) == (said[0], said[1].format(port))


@pytest.mark.parametrize("days", [30, -1], ids=["valid", "expired"])
def test_the_port_may_use_tls(tmp_path: Path, days: int) -> None:
    """With `[admin.tls]` the check uses TLS. No authority is needed, and an expired certificate does not make a process unhealthy."""
    files = Authority(tmp_path).issue("admin", hosts=("sluice.example.org",), days=days, since_days=3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with admin_port(200, "ok", context) as port:
        text = f'[admin]\naddress = "127.0.0.1:{port}"\n[admin.tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        result = health(tmp_path, text)
    assert (result.exit_code, result.output) == (0, f"healthy: https://127.0.0.1:{port}\n")


def test_nobody_listens(tmp_path: Path) -> None:
    """A port where nobody listens is exit code 1, with the address in the line."""
    port = free_port()
    result = health(tmp_path, f'[admin]\naddress = "127.0.0.1:{port}"\n')
    assert result.exit_code == 1
    assert result.output.startswith(f"unhealthy: http://127.0.0.1:{port}: ")
    assert len(result.output.splitlines()) == 1


def test_a_typo_elsewhere_in_the_file_is_no_illness(tmp_path: Path) -> None:
    """Only the keys of the admin port are read: the running process keeps its last good configuration."""
    with admin_port(200, "ok") as port:
        assert health(tmp_path, f'workerz = 3\n[admin]\naddress = "127.0.0.1:{port}"\ntokenz = 1\n').exit_code == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", f"{{}}: admin.address is missing; {NO_ADDRESS}"),
        ("admin = 1\n", f"{{}}: admin.address is missing; {NO_ADDRESS}"),
        ("[admin]\naddress = 9644\n", f"{{}}: admin.address: not a text; {NO_ADDRESS}"),
        ('[admin]\naddress = "127.0.0.1:0"\n', f"{{}}: admin.address: port 0 is any free port, so it is not known here; {NO_ADDRESS}"),
        ("[admin\n", "{}: is not TOML: Expected ']' at the end of a table declaration (at line 1, column 7)"),
    ],
)
def test_a_port_that_is_not_known_is_named(tmp_path: Path, text: str, line: str) -> None:
    """A file without a usable address is exit code 1, and the line names the file, the key and the remedy."""
    result = health(tmp_path, text)
    assert (result.exit_code, result.output) == (1, f"unhealthy: {line.format(tmp_path / 'sluice.toml')}\n")


def test_an_option_overrides_the_file(tmp_path: Path) -> None:
    """`--admin` names the port where the flag of `run` does. The file that says whether it uses TLS may be absent then."""
    with admin_port(200, "ok") as port:
        assert health(tmp_path, '[admin]\naddress = "127.0.0.1:1"\n', "--admin", f"127.0.0.1:{port}").exit_code == 0
        given = {"SLUICE_CONFIG": str(tmp_path / "absent.toml"), "SLUICE_ADMIN": f"127.0.0.1:{port}"}
        assert CliRunner().invoke(cli, ["health"], env=given).exit_code == 0


def test_without_file_and_port_the_remedy_is_named() -> None:
    """Without options and environment the line says what to give."""
    result = CliRunner().invoke(cli, ["health"], env={"SLUICE_CONFIG": None, "SLUICE_ADMIN": None})
    assert (result.exit_code, result.output) == (
        1,
        "unhealthy: --config is missing; name the configuration file of the running Sluice\n",
    )
