"""Kafka's `client.properties`, the file of `--command-config`: TLS and login for connections to brokers.

    settings = read_client_properties(Path("client.properties"))
    QuotaAdmin("kafka:9093", ssl_context=settings.ssl_context, login=settings.login)

Source: Kafka 3.8 `CommonClientConfigs`, `SaslConfigs`, `SslConfigs`.
"""

from __future__ import annotations

import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from protocol.sasl.mechanisms import OAUTHBEARER, PLAIN, SCRAM
from sluice.login import MECHANISMS, Login
from sluice.properties import JaasEntry, PropertiesError, read_jaas, read_properties

FILE_BYTES_MAX: Final = 1024 * 1024
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": (PLAIN,),
    "org.apache.kafka.common.security.scram.ScramLoginModule": SCRAM,
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": (OAUTHBEARER,),
}
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting
_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_USED: Final = frozenset(
    {
        "bootstrap.servers", "security.protocol", "default.api.timeout.ms", "sasl.mechanism", "sasl.jaas.config", _TOKEN_URL,
        "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates", "ssl.keystore.type", "ssl.keystore.location",
        "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip
_IGNORED_PROPERTIES: Final = frozenset(
    {"ssl.protocol", "ssl.enabled.protocols", "sasl.login.callback.handler.class", "ssl.truststore.password", "ssl.keystore.password"}
)
"""Security settings that may be present without an effect: TLS 1.2 and 1.3 are used anyway, and PEM files have no password of their own."""
_SECURITY: Final = ("security.", "sasl.", "ssl.")


class ClientPropertiesError(ValueError):
    """The file cannot be used; the text is one line with file, key and remedy, without a secret."""


class ClientSettings(NamedTuple):
    """The settings of a file."""

    bootstrap_servers: str | None
    ssl_context: ssl.SSLContext | None
    login: Login | None
    timeout_ms: int | None
    unused: tuple[str, ...]
    """Keys without an effect here, such as `group.id`."""


def read_client_properties(path: Path) -> ClientSettings:
    """Read a file of Kafka's client properties.

    Raises:
        ClientPropertiesError: the file cannot be used.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ClientPropertiesError(f"{path}: cannot be read: {error.strerror}; name a file of Kafka's client properties") from None
    if len(data) > FILE_BYTES_MAX:
        raise ClientPropertiesError(f"{path}: is larger than {FILE_BYTES_MAX} bytes; name a file of Kafka's client properties")
    try:
        return _Reader(path, read_properties(data.decode("utf-8", "surrogateescape"))).settings()
    except PropertiesError as error:
        raise ClientPropertiesError(f"{path}: {error}; write it as Java's properties") from None


class _Reader:
    """Converts the properties of one file to settings."""

    def __init__(self, path: Path, properties: Mapping[str, str]) -> None:
        self._path = path
        self._properties = {key: value.strip() for key, value in properties.items()}

    def settings(self) -> ClientSettings:
        for key in self._properties:
            if key.startswith(_SECURITY) and key not in _USED | _IGNORED_PROPERTIES:
                raise self._wrong(key, "is not supported here", "leave it out")
        protocol = self._get("security.protocol").upper() or "PLAINTEXT"
        if protocol not in _PROTOCOLS:
            raise self._wrong("security.protocol", f'"{protocol}" is not valid', f"write {', '.join(_PROTOCOLS)}")
        return ClientSettings(
            self._get("bootstrap.servers") or None,
            self._context() if protocol.endswith("SSL") else None,
            self._login() if protocol.startswith("SASL") else None,
            self._timeout_ms(),
            tuple(key for key in self._properties if key not in _USED | _IGNORED_PROPERTIES),
        )

    # --- TLS

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        algorithm = self._properties.get("ssl.endpoint.identification.algorithm", "https")
        if algorithm.lower() not in ("https", ""):
            raise self._wrong("ssl.endpoint.identification.algorithm", f'"{algorithm}" is not valid', "write https, or nothing")
        context.check_hostname = bool(algorithm)
        self._trust(context)
        self._show_certificate(context)
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        inline, location = self._get("ssl.truststore.certificates"), self._get("ssl.truststore.location")
        if not inline and not location:
            context.load_default_certs()
            return
        text = inline or self._pem("ssl.truststore", location)
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            key = "ssl.truststore.certificates" if inline else "ssl.truststore.location"
            raise self._wrong(key, "contains no PEM certificates", "name the certificates of the authorities to trust") from None

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        chain, location = self._get("ssl.keystore.certificate.chain"), self._get("ssl.keystore.location")
        if not chain and not location:
            return
        text = f"{chain}\n{self._get('ssl.keystore.key')}\n" if chain else self._pem("ssl.keystore", location)
        password = self._get("ssl.key.password")
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600; OpenSSL reads only files
            file.write(text)
            file.flush()
            try:
                context.load_cert_chain(file.name, password=lambda: password)
            except (ssl.SSLError, ValueError):
                key = "ssl.keystore.certificate.chain" if chain else "ssl.keystore.location"
                problem = "holds no certificate and private key in PEM that belong together"
                raise self._wrong(key, problem, "write both, and ssl.key.password if the key has one") from None

    def _pem(self, store: str, location: str) -> str:
        """Return the text of a PEM store; Java's own store formats are not supported."""
        kind = self._get(f"{store}.type").upper()
        try:
            data = Path(location).read_bytes()
        except OSError as error:
            raise self._wrong(f"{store}.location", f"{location} cannot be read: {error.strerror}", "name a file in PEM") from None
        if kind not in ("", "PEM") or b"-----BEGIN" not in data:
            problem = f"{location} is no PEM, and Java's own stores cannot be read here"
            raise self._wrong(f"{store}.location", problem, f"export it with keytool and openssl, and write {store}.type=PEM")
        return data.decode("utf-8", "replace")

    # --- login

    def _login(self) -> Login:
        mechanism = self._get("sasl.mechanism") or "GSSAPI"
        if mechanism not in MECHANISMS:
            raise self._wrong("sasl.mechanism", f"{mechanism} is not supported here", f"write {', '.join(MECHANISMS)}")
        if not self._get("sasl.jaas.config"):
            raise self._wrong("sasl.jaas.config", f"is missing with {mechanism}", "write the login module with its options")
        try:
            entry = read_jaas(self._get("sasl.jaas.config"))
        except PropertiesError as error:
            raise self._wrong("sasl.jaas.config", str(error), 'write MODULE required username="..." password="...";') from None
        if mechanism not in _MODULES.get(entry.module, ()):
            raise self._wrong("sasl.jaas.config", f"{entry.module} is not the login module of {mechanism}", "name that one")
        return self._bearer(entry) if mechanism == OAUTHBEARER else self._password(mechanism, entry)

    def _password(self, mechanism: str, entry: JaasEntry) -> Login:
        if entry.options.get("tokenauth", "false") != "false":
            raise self._wrong("sasl.jaas.config", "tokenauth is not supported here", "name a user with a password")
        for name in ("username", "password"):
            if not entry.options.get(name):
                raise self._wrong("sasl.jaas.config", f"has no {name}", f'write {name}="..." into it')
        return Login(mechanism, entry.options["username"], entry.options["password"])

    def _bearer(self, entry: JaasEntry) -> Login:
        url = self._get(_TOKEN_URL)
        if not url:
            if _SUBJECT not in entry.options:
                remedy = f'write {_SUBJECT}="NAME" into it, or {_TOKEN_URL}=file:///PATH'
                raise self._wrong("sasl.jaas.config", "names no subject of an unsecured token", remedy)
            return Login.of_unsecured_token(entry.options[_SUBJECT], time.time())
        parts = urlsplit(url)
        if parts.scheme != "file":
            raise self._wrong(_TOKEN_URL, "only tokens in files are supported here", "fetch one and write file:///PATH")
        try:
            token = Path(unquote(parts.path)).read_text("ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise self._wrong(_TOKEN_URL, f"the token cannot be read: {reason}", "name the file that holds it") from None
        return Login(OAUTHBEARER, "", token)

    # --- unused keys

    def _timeout_ms(self) -> int | None:
        text = self._get("default.api.timeout.ms")
        if text and not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
            raise self._wrong("default.api.timeout.ms", f'"{text}" is not valid', "write milliseconds")
        return int(text) if text else None

    def _get(self, key: str) -> str:
        return self._properties.get(key, "")

    def _wrong(self, key: str, problem: str, remedy: str) -> ClientPropertiesError:
        return ClientPropertiesError(f"{self._path}: {key}: {problem}; {remedy}")
