"""`[upstream]` and `[listener.upstream]`: the brokers' listeners that Sluice's listeners lead to."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

from pathlib import Path

import pytest

from proxy.base.host_port import HostPort
from proxy.config.checks.all import advice_on
from proxy.config.sections.tls import UpstreamTls
from proxy.config.sections.upstreams import distinct_upstreams
from tests.support.config_folder import complaints, load
from tests.support.tls.certificates import Authority

MAIN = '[upstream]\nbootstrap = "kafka:9092"\n'


def listener(port: int, text: str = "", upstream: str = "") -> str:
    own = f"[listener.upstream]\n{upstream}\n" if upstream else ""
    return f'[[listener]]\naddress = "127.0.0.1:{port}"\n{text}\n{own}'


def test_a_protocol_with_ssl_is_tls(tmp_path: Path) -> None:
    """A protocol with SSL enables TLS with the system's certificate authorities."""
    config = load(tmp_path, MAIN + 'protocol = "sasl_ssl"\n' + listener(19_092))
    assert (config.upstream.protocol, config.upstream.tls) == ("SASL_SSL", UpstreamTls())
    assert load(tmp_path, MAIN + 'protocol = "plaintext"\n' + listener(19_092)).upstream.tls is None


def test_listeners_with_upstreams_of_their_own(tmp_path: Path) -> None:
    """Equal upstreams are merged, paths are relative to the configuration, and each upstream has a name."""
    Authority(tmp_path, "ca")
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text("x")
    secure = 'bootstrap = "kafka:9094"\ntls = { ca = "ca.pem" }\ncredentials = { mechanism = "PLAIN", username = "u", password_file = "password" }\n'
    text = MAIN + listener(19_092) + listener(29_092, "", secure) + listener(39_092, 'name = "third"', secure)
    config = load(tmp_path, text)
    second, third = config.listeners[1].upstream, config.listeners[2].upstream
    assert second
    assert second == third
    assert second.bootstrap == (HostPort("kafka", 9_094),)
    assert second.tls
    assert second.credentials
    assert (second.tls.ca, second.credentials.password_file) == (tmp_path / "ca.pem", tmp_path / "password")
    assert list(distinct_upstreams(config).values()) == ["upstream", "listener.listener-2.upstream"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            MAIN + 'protocol = "auto"\n' + listener(19_092),
            'upstream.protocol: "auto" is not valid; write "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"',
        ),
        (
            MAIN + 'protocol = "SASL_PLAINTEXT"\n[upstream.tls]\n' + listener(19_092),
            'upstream.tls: has no effect with SASL_PLAINTEXT; write protocol = "SASL_SSL"',
        ),
        (
            MAIN + 'protocol = "PLAINTEXT"\ncredentials = { mechanism = "SCRAM-SHA-256", username = "u", password_file = "p" }\n' + listener(19_092),
            "upstream.credentials: have no effect with PLAINTEXT, where no client logs in; leave them out",
        ),
        (
            MAIN + 'protocol = "PLAINTEXT"\n' + listener(19_092, 'protocol = "SASL_PLAINTEXT"'),
            "listener[1].protocol: SASL_PLAINTEXT makes clients log in, and the brokers accept no login there (PLAINTEXT); write the brokers' SASL listener into listener[1].upstream, or another protocol",
        ),
        (
            MAIN + listener(19_092, 'protocol = "PLAINTEXT"', 'bootstrap = "kafka:9093"\nprotocol = "SASL_SSL"'),
            "listener[1].protocol: PLAINTEXT has no login, and the brokers require one there (SASL_SSL); write the brokers' listener without SASL into listener[1].upstream, or another protocol",
        ),
        (
            MAIN + listener(19_092, "", 'bootstrap = "127.0.0.1:19092"'),
            "listener[1].upstream.bootstrap: 127.0.0.1:19092 is Sluice's own listener; write the address of a broker",
        ),
        (
            "sidecar = true\n" + MAIN + listener(19_092, "", 'bootstrap = "a:1,b:1"'),
            "listener[1].upstream.bootstrap: a sidecar serves one broker, not 2; write one address",
        ),
        (
            MAIN + listener(19_092, "", 'bootstrap = "kafka:9093"\ntls = { ca = "absent.pem" }'),
            "listener[1].upstream.tls.ca: absent.pem cannot be read: No such file or directory; name a file that Sluice may read",
        ),
        (
            MAIN + listener(19_092, "", 'bootstrap = "kafka:9093"\ntls = { key = "k.pem" }'),
            "listener[1].upstream.tls.certificate: is missing beside the other of the two; name both, or none",
        ),
        (
            MAIN + listener(19_092, "", 'protocol = "SSL"'),
            'listener[1].upstream.bootstrap: is missing; write a list such as ["kafka-1:9092", "kafka-2:9092"]',
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, line: str) -> None:
    """Settings of a listener and its upstream that contradict each other are refused with one line."""
    assert complaints(tmp_path, text) == [line]


def test_tls_that_ends_at_sluice_is_reported(tmp_path: Path) -> None:
    """check-config warns when requests that clients encrypt go to brokers without TLS beyond loopback."""
    Authority(tmp_path, "ca").issue("server")
    tls = 'protocol = "SSL"\ntls = { certificate = "server.crt", key = "server.key" }'
    line = "listener default: requests that clients encrypt are sent to the brokers in the clear; write [upstream.tls] where others can read the network"
    assert advice_on(load(tmp_path, MAIN + listener(19_092, tls))) == [line]
    assert advice_on(load(tmp_path, MAIN + 'protocol = "SSL"\n' + listener(19_092, tls))) == []
    assert advice_on(load(tmp_path, MAIN.replace("kafka", "127.0.0.1") + listener(19_092, tls))) == []
