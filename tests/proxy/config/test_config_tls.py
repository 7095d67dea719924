"""`[listener.tls]` and `[upstream.tls]`: what is read, and one line for each problem."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

from pathlib import Path

import pytest

from proxy.config.checks.all import advice_on
from tests.support.config_folder import complaints, load
from tests.support.tls.certificates import Authority

HEAD = '[upstream]\nbootstrap = "127.0.0.1:9092"\n'
LISTENER = '[[listener]]\naddress = "127.0.0.1:19092"\n[listener.tls]\n'
OWN = 'certificate = "server.crt"\nkey = "server.key"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a server certificate and its certificate authority."""
    Authority(tmp_path, "ca").issue("server")
    return tmp_path


def test_paths_begin_where_the_file_lies(folder: Path) -> None:
    """Paths of TLS files are relative to the configuration."""
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
            "listener[1].tls.client_ca: server.key contains no PEM certificates; name the certificates of the authorities to trust",
        ),
        (
            OWN + 'principal_mapping_rules = "RULE:a/b"',
            "listener[1].tls.principal_mapping_rules: rule 'RULE:a/b' does not parse at 'RULE:a/b'; write DEFAULT or RULE:pattern/replacement/ with L or U behind it, separated by commas",
        ),
        (
            OWN + 'principal_mapping_rules = ""',
            "listener[1].tls.principal_mapping_rules: names no rule; write DEFAULT or RULE:pattern/replacement/ with L or U behind it, separated by commas",
        ),
        ('key = "server.key"', "listener[1].tls.certificate: is missing; write the path of a file in PEM"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, text: str, line: str) -> None:
    """A problem of TLS settings is one line with the key, what is wrong, and what to write."""
    assert complaints(folder, HEAD + LISTENER + text) == [line]


def test_plaintext_with_tls_is_a_contradiction(folder: Path) -> None:
    """A PLAINTEXT listener with TLS settings is refused."""
    text = HEAD + LISTENER.replace("[listener.tls]", 'protocol = "PLAINTEXT"\n[listener.tls]') + OWN
    assert complaints(folder, text) == ['listener[1].protocol: PLAINTEXT has no TLS; write "SSL", or leave out listener[1].tls']


def test_a_key_log_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with SSLKEYLOGFILE in the environment is refused."""
    monkeypatch.setenv("SSLKEYLOGFILE", "keys")
    (line,) = complaints(folder, HEAD + LISTENER + OWN)
    assert line.startswith("SSLKEYLOGFILE: is set in the environment")


def test_half_a_certificate_towards_brokers(folder: Path) -> None:
    """An upstream certificate without its key is refused."""
    text = f'{HEAD}[upstream.tls]\ncertificate = "server.crt"\n[[listener]]\naddress = "127.0.0.1:19092"\n'
    assert complaints(folder, text) == ["upstream.tls.key: is missing beside the other of the two; name both, or none"]


SNI = '[listener.sni]\nbootstrap = "kafka.example.org"\nbroker = "broker-{node_id}.kafka.example.org"\n'


def test_names_of_brokers_are_read(folder: Path) -> None:
    """`[listener.sni]` is read with its names and advertised port."""
    sni = load(folder, HEAD + LISTENER + OWN + SNI + "advertised_port = 443").listeners[0].sni
    assert sni
    assert (sni.names().name_of(7), sni.others, sni.advertised_port) == ("broker-7.kafka.example.org", "close", 443)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            LISTENER.replace("[listener.tls]\n", SNI),
            "listener[1].sni: names are sent by TLS only; write the table listener[1].tls",
        ),
        (
            LISTENER.replace("[listener.tls]", "first_broker_port = 9200\n[listener.tls]") + OWN + SNI,
            "listener[1].first_broker_port: has no effect where clients name their broker (sni); leave it out",
        ),
        (
            LISTENER + OWN + SNI.replace("broker-{node_id}", "broker"),
            'listener[1].sni.broker: does not contain {node_id} exactly once; write a host name with {node_id} in it, such as "broker-{node_id}.kafka.example.org"',
        ),
        (
            LISTENER + OWN + SNI.replace('"kafka.example.org', '"10.0.0.7'),
            'listener[1].sni.bootstrap: "10.0.0.7" is an address; write a host name; addresses are not sent in SNI',
        ),
        (
            LISTENER + OWN + SNI.replace('"kafka', '"Broker-3.kafka'),
            'listener[1].sni.bootstrap: "Broker-3.kafka.example.org" is a broker\'s name by the template; write another name',
        ),
        (
            LISTENER + OWN + SNI + 'others = "maybe"',
            'listener[1].sni.others: "maybe" is not valid; write "close" or "bootstrap"',
        ),
    ],
)
def test_what_is_wrong_with_names_is_named(folder: Path, text: str, line: str) -> None:
    """A problem of `[listener.sni]` is one line with the key and what to write."""
    assert complaints(folder, HEAD + text) == [line]


def test_names_have_no_place_in_a_sidecar(folder: Path) -> None:
    """`[listener.sni]` is refused in a sidecar."""
    lines = complaints(folder, "sidecar = true\n" + HEAD + LISTENER + OWN + SNI)
    assert lines == ["listener[1].sni: has no effect in a sidecar, which rewrites no address; leave it out"]


@pytest.mark.parametrize(
    ("hosts", "advice"),
    [
        (("kafka.example.org", "*.kafka.example.org"), []),
        (("*.example.org", "*.kafka.example.org"), []),
        (
            ("KAFKA.example.org", "broker-1.kafka.example.org", "broker-2.kafka.example.org"),
            [
                "is only for broker-1.kafka.example.org, broker-2.kafka.example.org of broker-{node_id}.kafka.example.org; one with a wildcard is for all"
            ],
        ),
        (
            ("*.example.org",),
            ["is for no broker of broker-{node_id}.kafka.example.org; one with a wildcard is for all"],
        ),
        (
            (),
            [
                "is not for kafka.example.org, where clients begin",
                "is for no broker of broker-{node_id}.kafka.example.org; one with a wildcard is for all",
            ],
        ),
    ],
)
def test_a_certificate_without_the_names_is_reported(tmp_path: Path, hosts: tuple[str, ...], advice: list[str]) -> None:
    """check-config reports the names that the certificate does not cover."""
    Authority(tmp_path, "ca").issue("server", hosts=hosts)
    config = load(tmp_path, HEAD + LISTENER.replace("[listener.tls]", 'protocol = "SSL"\n[listener.tls]') + OWN + SNI)
    about = f"listener default: the certificate in {tmp_path / 'server.crt'} "
    assert advice_on(config) == [about + line for line in advice]
