"""Kafka's client.properties: the connection to brokers and the login."""

# ruff: noqa: E501 -- the messages to operators are written in one line

import base64
import json
import pickle
import ssl
from pathlib import Path

import pytest

from sluice.client_properties import ClientPropertiesError, ClientSettings, read_client_properties
from tests.support.tls.certificates import Authority

SECRET = "geheim-4711"  # noqa: S105
SCRAM = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="{SECRET}";'
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{SECRET}";'
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def read(folder: Path, text: str) -> ClientSettings:
    path = folder / "client.properties"
    path.write_text(text)
    return read_client_properties(path)


def sasl(mechanism: str, jaas: str, more: str = "") -> str:
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n{more}"


def test_an_empty_file_says_plain_connections(tmp_path: Path) -> None:
    """An empty file gives plaintext connections, Kafka's default."""
    assert read(tmp_path, "") == (None, None, None, None, ())


def test_what_means_nothing_here_is_reported(tmp_path: Path) -> None:
    """Settings that only consumers or producers use are reported as unused."""
    settings = read(tmp_path, "bootstrap.servers=a:1,b:2\ngroup.id=x\nacks=all\ndefault.api.timeout.ms=5000\n")
    assert (settings.bootstrap_servers, settings.timeout_ms, settings.unused) == ("a:1,b:2", 5_000, ("group.id", "acks"))


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)])
def test_a_password_is_read_and_never_shown(tmp_path: Path, mechanism: str, jaas: str) -> None:
    """A password is sent in the login and is not in the printed settings."""
    settings = read(tmp_path, sasl(mechanism, jaas))
    assert settings.login is not None
    assert (settings.login.mechanism, settings.login.username, settings.ssl_context) == (mechanism, "admin", None)
    assert SECRET not in f"{settings} {settings.login!r} {settings.login}"
    with pytest.raises(TypeError):
        pickle.dumps(settings.login)


def test_an_unsecured_token_names_its_subject(tmp_path: Path) -> None:
    """An unsecured token names its subject, as the token of Kafka's own client for test brokers does."""
    login = read(tmp_path, sasl("OAUTHBEARER", f'{BEARER} unsecuredLoginStringClaim_sub="alice";')).login
    assert login is not None
    steps = login.steps("test")
    next(steps)
    handshake_answer = bytes.fromhex("00000010 000003e8 0000 00000000".replace(" ", ""))
    token = steps.send(handshake_answer).split(b"Bearer ")[1].split(b"\x01")[0]
    head, claims, signature = token.split(b".")
    assert json.loads(base64.urlsafe_b64decode(head + b"==")) == {"alg": "none"}
    reported = json.loads(base64.urlsafe_b64decode(claims + b"=="))
    assert (reported["sub"], reported["exp"] - reported["iat"], signature) == ("alice", 3_600, b"")


def test_a_token_may_stand_in_a_file(tmp_path: Path) -> None:
    """A bearer token is read from a file under the name of the setting in Kafka's clients."""
    (tmp_path / "to ken").write_text("e30.e30.sig\n")
    url = f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path}/to%20ken\n"
    login = read(tmp_path, sasl("OAUTHBEARER", f"{BEARER};", url)).login
    assert login is not None
    assert (login.mechanism, login.username) == ("OAUTHBEARER", "")


def test_tls_with_authorities_and_a_certificate_of_ones_own(tmp_path: Path) -> None:
    """Authorities, certificate and key are read from files and from inline values."""
    authority = Authority(tmp_path)
    own = authority.issue("client")
    store = tmp_path / "store.pem"
    store.write_text(own.certificate.read_text() + own.key.read_text())
    in_files = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.file}\nssl.keystore.type=PEM\nssl.keystore.location={store}\n"
    one_line = {
        name: path.read_text().replace("\n", "\\n") for name, path in (("ca", authority.file), ("chain", own.certificate), ("key", own.key))
    }
    inline = (
        f"security.protocol=ssl\nssl.truststore.type=PEM\nssl.truststore.certificates={one_line['ca']}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.certificate.chain={one_line['chain']}\nssl.keystore.key={one_line['key']}\n"
    )
    for text in (in_files, inline):
        context = read(tmp_path, text).ssl_context
        assert context is not None
        assert (context.check_hostname, context.verify_mode, len(context.get_ca_certs())) == (True, ssl.CERT_REQUIRED, 1)
    without_names = read(tmp_path, in_files + "ssl.endpoint.identification.algorithm=\n").ssl_context
    assert without_names is not None
    assert (without_names.check_hostname, without_names.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("security.protocol=TLS", 'security.protocol: "TLS" is not valid; write PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL'),
        ("sasl.kerberos.service.name=kafka", "sasl.kerberos.service.name: is not supported here; leave it out"),
        ("ssl.engine.factory.class=x", "ssl.engine.factory.class: is not supported here; leave it out"),
        ("security.protocol=SASL_SSL", "sasl.mechanism: GSSAPI is not supported here; write PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN", "sasl.jaas.config: is missing with PLAIN; write the login module with its options"),
        (sasl("PLAIN", PLAIN[:-1]), 'sasl.jaas.config: it does not end with ";"; write MODULE required username="..." password="...";'),
        (sasl("PLAIN", SCRAM), "sasl.jaas.config: org.apache.kafka.common.security.scram.ScramLoginModule is not the login module of PLAIN; name that one"),
        (sasl("PLAIN", PLAIN.replace("username", "user")), 'sasl.jaas.config: has no username; write username="..." into it'),
        (sasl("SCRAM-SHA-256", SCRAM.replace(";", " tokenauth=true;")), "sasl.jaas.config: tokenauth is not supported here; name a user with a password"),
        (sasl("OAUTHBEARER", f"{BEARER};"), 'sasl.jaas.config: names no subject of an unsecured token; write unsecuredLoginStringClaim_sub="NAME" into it, or sasl.oauthbearer.token.endpoint.url=file:///PATH'),
        (sasl("OAUTHBEARER", f"{BEARER};", "sasl.oauthbearer.token.endpoint.url=https://x/y"), "sasl.oauthbearer.token.endpoint.url: only tokens in files are supported here; fetch one and write file:///PATH"),
        ("security.protocol=SSL\nssl.truststore.location=/none", "ssl.truststore.location: /none cannot be read: No such file or directory; name a file in PEM"),
        ("security.protocol=SSL\nssl.truststore.location={folder}/jks", "ssl.truststore.location: {folder}/jks is no PEM, and Java's own stores cannot be read here; export it with keytool and openssl, and write ssl.truststore.type=PEM"),
        ("security.protocol=SSL\nssl.truststore.certificates=x", "ssl.truststore.certificates: contains no PEM certificates; name the certificates of the authorities to trust"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=ldap", 'ssl.endpoint.identification.algorithm: "ldap" is not valid; write https, or nothing'),
        ("default.api.timeout.ms=soon", 'default.api.timeout.ms: "soon" is not valid; write milliseconds'),
        ("a=\\u12", "a \\u is not followed by four hexadecimal digits; write it as Java's properties"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line_without_a_secret(tmp_path: Path, text: str, line: str) -> None:
    """A setting that cannot be used gives one line with file, key and remedy, and without a secret."""
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ClientPropertiesError) as caught:
        read(tmp_path, text.replace("{folder}", str(tmp_path)))
    assert str(caught.value) == f"{tmp_path}/client.properties: {line.replace('{folder}', str(tmp_path))}"
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is named."""
    with pytest.raises(
        ClientPropertiesError, match="none: cannot be read: No such file or directory; name a file of Kafka's client properties"
    ):
        read_client_properties(tmp_path / "none")
