"""A login at ZooKeeper by SASL DIGEST-MD5 (RFC 2831), its only mechanism without Kerberos. Pure.

An eavesdropper can guess the password offline. ZooKeeper's servers offer no better mechanism, so use it inside TLS.
"""

import hmac
import re
import secrets
from collections.abc import Callable
from hashlib import md5
from typing import Final

REALM_HOST: Final = "zk-sasl-md5"
"""Server name that ZooKeeper's clients use. Source: `SaslServerPrincipal`, `ZooKeeperSaslServer`."""
_DIRECTIVE: Final = re.compile(rb'([a-zA-Z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,"]*))(?:,|$)')
_ESCAPE: Final = re.compile(rb"\\(.)")


class LoginError(Exception):
    """The server's message is invalid, or does not prove that the server knows the password."""


class DigestLogin:
    """One login: answers the server's challenge, then verifies the server's proof.

    Args:
        nonce: returns the client nonce, a unique text.
    """

    def __init__(self, user: str, password: str, nonce: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self._user = user
        self._password = password
        self._nonce = nonce
        self._proof: bytes | None = None

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to the server's challenge.

        Raises:
            LoginError: `challenge` is invalid.
        """
        directives = _directives(challenge)
        nonce, realm = directives.get("nonce"), directives.get("realm", b"")
        qops = [word.strip() for word in directives.get("qop", b"auth").split(b",")]
        if nonce is None or directives.get("algorithm") != b"md5-sess" or b"auth" not in qops:
            raise LoginError("ZooKeeper requires a login other than DIGEST-MD5")
        mine, uri = self._nonce().encode(), f"zookeeper/{REALM_HOST}".encode()
        secret = _md5(_hashed(self._user) + b":" + realm + b":" + _hashed(self._password)) + b":" + nonce + b":" + mine

        def digest(what: bytes) -> bytes:
            parts = (_md5(secret).hex().encode(), nonce, b"00000001", mine, b"auth", _md5(what + b":" + uri).hex().encode())
            return _md5(b":".join(parts)).hex().encode()

        self._proof = digest(b"")
        quoted = {b"username": self._user.encode(), b"realm": realm, b"nonce": nonce, b"cnonce": mine, b"digest-uri": uri}
        written = [name + b'="' + re.sub(rb'(["\\])', rb"\\\1", value) + b'"' for name, value in quoted.items()]
        return b",".join([b"charset=utf-8", *written, b"nc=00000001", b"qop=auth", b"response=" + digest(b"AUTHENTICATE")])

    def check(self, proof: bytes) -> None:
        """Verify the server's final message.

        Raises:
            LoginError: the message does not prove that the server knows the password.
        """
        if self._proof is None or not hmac.compare_digest(_directives(proof).get("rspauth", b""), self._proof):
            raise LoginError("ZooKeeper does not prove that it knows the password")


def _hashed(text: str) -> bytes:
    """Return the bytes of a name or password to hash: ISO 8859-1 if it can encode the text, otherwise UTF-8 (RFC 2831, 2.1.2.1)."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _directives(words: bytes) -> dict[str, bytes]:
    found = {}
    for one in _DIRECTIVE.finditer(words):
        name, quoted, plain = one.groups()
        found[name.decode().lower()] = plain if quoted is None else _ESCAPE.sub(rb"\1", quoted)
    return found


def _md5(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).digest()  # required by the protocol
