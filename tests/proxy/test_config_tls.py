"""`[listener.tls]` and `[upstream.tls]`: read, or a line for each problem."""

# ruff: noqa: E501 -- the lines that operators read stand here whole

from pathlib import Path

import pytest

from proxy.config import Config, ConfigSource
from proxy.config_problem import ConfigProblems
from tests.support.certificates import Authority

HEAD = '[upstream]\nbootstrap = "kafka:9092"\n'
LISTENER = '[[listener]]\naddress = "127.0.0.1:19092"\n[listener.tls]\n'
OWN = 'certificate = "server.crt"\nkey = "server.key"\n'


def load(folder: Path, text: str) -> Config:
    path = folder / "sluice.toml"
    path.write_text(text)
    return ConfigSource(path).load()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a server's certificate and the authority that signed it."""
    Authority(tmp_path, "ca").issue("server")
    return tmp_path


def complaints(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        load(folder, text)
    return [line.replace(f"{folder / 'sluice.toml'}: ", "").replace(f"{folder}/", "") for line in caught.value.lines()]


def test_paths_begin_where_the_file_lies(folder: Path) -> None:
    """Both tables are read, and their files are looked at before anything is opened."""
    text = f'{HEAD}[upstream.tls]\nca = "ca.pem"\n{LISTENER}{OWN}client_auth = "required"\nclient_ca = "ca.pem"\n'
    config = load(folder, text)
    tls = config.listeners[0].tls
    assert tls
    assert (tls.certificate, tls.key, tls.client_ca) == (folder / "server.crt", folder / "server.key", folder / "ca.pem")
    assert config.upstream.tls
    assert config.upstream.tls.ca == folder / "ca.pem"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            OWN.replace("server.key", "absent.key"),
            "listener[1].tls.key: absent.key cannot be read: No such file or directory; name a file that Sluice may read",
        ),
        (
            OWN + 'client_auth = "required"',
            'listener[1].tls.client_ca: is missing where client_auth is "required"; name the authorities of your clients',
        ),
        (
            OWN + 'client_ca = "ca.pem"',
            'listener[1].tls.client_ca: has no effect where no client shows a certificate; write client_auth = "required"',
        ),
        (
            OWN + 'client_auth = "required"\nclient_ca = "server.key"',
            "listener[1].tls.client_ca: server.key holds no certificates in PEM; name those of the authorities to trust",
        ),
        (
            OWN + 'principal_mapping_rules = "RULE:a/b"',
            "listener[1].tls.principal_mapping_rules: rule 'RULE:a/b' does not parse at 'RULE:a/b'; write DEFAULT or RULE:pattern/replacement/ with L or U behind it, parted by commas",
        ),
        (
            OWN + 'principal_mapping_rules = ""',
            "listener[1].tls.principal_mapping_rules: names no rule; write DEFAULT or RULE:pattern/replacement/ with L or U behind it, parted by commas",
        ),
        ('key = "server.key"', "listener[1].tls.certificate: is missing; write the path of a file in PEM"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, text: str, line: str) -> None:
    """One line says which key, what is wrong and what to write instead."""
    assert complaints(folder, HEAD + LISTENER + text) == [line]


def test_plaintext_with_tls_is_a_contradiction(folder: Path) -> None:
    """One of the two has to go."""
    text = HEAD + LISTENER.replace("[listener.tls]", 'protocol = "PLAINTEXT"\n[listener.tls]') + OWN
    assert complaints(folder, text) == ['listener[1].protocol: PLAINTEXT has no TLS; write "SSL", or leave out listener[1].tls']


def test_a_key_log_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can read such a file can read every connection."""
    monkeypatch.setenv("SSLKEYLOGFILE", "keys")
    (line,) = complaints(folder, HEAD + LISTENER + OWN)
    assert line.startswith("SSLKEYLOGFILE: is set in the environment")


def test_half_a_certificate_towards_brokers(folder: Path) -> None:
    """A certificate needs its key."""
    text = f'{HEAD}[upstream.tls]\ncertificate = "server.crt"\n[[listener]]\naddress = "127.0.0.1:19092"\n'
    assert complaints(folder, text) == ["upstream.tls.key: is missing beside the other of the two; name both, or none"]
