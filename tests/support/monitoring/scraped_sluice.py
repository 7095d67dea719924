"""Sluice with all that a board shows, in a network namespace of its own: workers, a fleet, metering, TLS and tokens."""

import http.client
import json
import secrets
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.monitoring.load import QUOTAS
from tests.support.patience import until_true
from tests.support.places import ROOT, log_file
from tests.support.processes.logged_process import end, with_log
from tests.support.processes.namespaces import NEAR_ADDRESS, Wire
from tests.support.processes.sluice_process import write_quotas
from tests.support.processes.sluice_workers import children_of
from tests.support.tls.certificates import Authority

SERVER_NAME: Final = "sluice-admin.kafka.svc"
"""The name in the ServiceMonitor."""
ADMIN: Final = f"{NEAR_ADDRESS}:9644"
BROKER_PORTS: Final = (19_001, 19_002)
PORT: Final = 9_092
LOGIN_PORT: Final = 9_392
"""No other process is in the namespace."""
CONFIG: Final = f"""
workers = 2
[upstream]
bootstrap = ["127.0.0.1:{BROKER_PORTS[0]}", "127.0.0.1:{BROKER_PORTS[1]}"]
[[listener]]
address = "127.0.0.1:{PORT}"
name = "edge"
protocol = "PLAINTEXT"
[[listener]]
address = "127.0.0.1:{LOGIN_PORT}"
name = "logins"
protocol = "SASL_PLAINTEXT"
max_connection_creation_rate = 4
[quotas]
path = "quotas.toml"
broker_threads = 11
[fleet]
name = "edge"
secret_file = "fleet.secret"
directory = "bus"
connections = true
[metering]
dir = "metering"
rotate_seconds = 5
[limits]
drain_ms = 1000
[admin]
address = "{ADMIN}"
ip_series = 10
tokens = [{{ name = "prometheus", file = "prometheus.token" }}, {{ name = "ops", file = "ops.token", role = "write" }}]
[admin.tls]
certificate = "admin.crt"
key = "admin.key"
"""


class ScrapedSluice:
    """Sluice, its brokers and its clients in the namespace `near`; a context manager that is ready inside the block.

    Attributes:
        secrets: a folder that has the Secrets of the ServiceMonitor, as `scrape_config` reads them.
    """

    def __init__(self, wire: Wire, folder: Path) -> None:
        authority = Authority(folder)
        authority.issue("admin", hosts=(NEAR_ADDRESS, SERVER_NAME))
        self._authority = authority.file
        for name in ("fleet.secret", "prometheus.token", "ops.token"):
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(secrets.token_hex(32))
        self.secrets = folder / "secrets"
        for name, key, source in (
            ("sluice-admin-tls", "ca.crt", authority.file),
            ("sluice-admin-token", "token", folder / "prometheus.token"),
        ):
            (self.secrets / name).mkdir(parents=True)
            (self.secrets / name / key).symlink_to(source)
        (folder / "bus").mkdir(mode=0o700)
        write_quotas(folder / "quotas.toml", QUOTAS)
        self._config = folder / "sluice.toml"
        self._config.write_text(CONFIG)
        self._ops_token = (folder / "ops.token").read_text()
        self._wire = wire
        self._log = log_file("sluice-scraped")
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            ports = [*map(str, BROKER_PORTS), "--", str(PORT), str(LOGIN_PORT)]
            self._start("tests.support.monitoring.load", *ports)
            self._start("sluice_cli", "run", "--config", str(self._config))
            until_true(self._is_ready, "Sluice")
        except AssertionError as error:
            self.__exit__(None, None, None)
            raise with_log(error, self._log) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self._processes):
            if process.stdin is not None:
                process.stdin.close()
            end(process)

    def reload(self) -> None:
        """Send SIGHUP."""
        self._processes[-1].send_signal(signal.SIGHUP)

    def workers(self) -> list[int]:
        """Return the process ids of its workers, oldest first."""
        return children_of(self._processes[-1].pid, "sluice-worker")

    def post(self, path: str, body: object) -> int:
        """Send a change with a token from the other namespace; return the status code."""
        headers = {"Authorization": f"Bearer {self._ops_token}", "Content-Type": "application/json"}
        return self._wire.at_far(lambda: self._ask("POST", path, json.dumps(body), headers))

    def _start(self, module: str, *arguments: str) -> None:
        command = self._wire.command([sys.executable, "-m", module, *arguments])
        with self._log.open("ab") as output:
            self._processes.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT))

    def _is_ready(self) -> bool:
        try:
            return self._wire.at_far(lambda: self._ask("GET", "/readyz")) == 200
        except OSError:
            return False

    def _ask(self, method: str, path: str, body: str | None = None, headers: dict[str, Any] | None = None) -> int:
        trust = ssl.create_default_context(cafile=self._authority)
        connection = http.client.HTTPSConnection(ADMIN, timeout=5, context=trust)
        try:
            connection.request(method, path, body, headers or {})
            return connection.getresponse().status
        finally:
            connection.close()
