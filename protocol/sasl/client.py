"""The client's side of Sluice's own logins: tokens to send, and the check of the broker's proof. Without I/O; nonces are arguments.

Sources: RFC 4616 (PLAIN), RFC 5802 and Kafka 3.8 `ScramSaslClient`, `ScramFormatter` (SCRAM), RFC 7628 (OAUTHBEARER).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from protocol.primitives import Buffer
from protocol.sasl.mechanisms import OAUTHBEARER, PLAIN

SCRAM_ITERATIONS_MIN: Final = 4_096
"""As in Kafka's client: with fewer, an impostor of the broker could guess the password offline."""
SCRAM_ITERATIONS_MAX: Final = 1_000_000
"""Some hundred milliseconds of work; Kafka itself takes up to 16,384."""

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SERVER_FIRST: Final = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]{1,512}),s=([A-Za-z0-9+/]+={0,2}),i=([1-9][0-9]{0,9})(?:,.*)?")
_SERVER_FINAL: Final = re.compile(rb"v=([A-Za-z0-9+/]+={0,2})(?:,.*)?")


class TokenRefusedError(Exception):
    """The broker refuses the login, or cannot prove that it knows the password."""


class PlainClient:
    """One token; the broker's response is empty."""

    def __init__(self, username: str, password: str) -> None:
        self._token = b"\0" + username.encode() + b"\0" + password.encode()

    def first(self) -> bytes:
        """Return the first token."""
        return self._token

    def answer(self, token: Buffer) -> bytes | None:
        """Return the response to the broker's token; None: the login has succeeded.

        Raises:
            TokenRefusedError: the broker's token is not valid in this mechanism.
        """
        _refuse_more(token)
        return None


class BearerClient:
    """One token; a refusal comes without an error code, as JSON."""

    def __init__(self, bearer: str) -> None:
        self._token = b"n,,\x01auth=Bearer " + bearer.encode() + b"\x01\x01"

    def first(self) -> bytes:
        """Return the first token."""
        return self._token

    def answer(self, token: Buffer) -> bytes | None:
        """As in `PlainClient`."""
        _refuse_more(token)
        return None


class ScramClient:
    """Two tokens; the broker's last token is its signature, which requires the password.

    Args:
        nonce: fresh printable ASCII without a comma.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce.encode()
        self._first = b"n=" + username.replace("=", "=3D").replace(",", "=2C").encode() + b",r=" + self._nonce
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return the first token."""
        return b"n,," + self._first

    def answer(self, token: Buffer) -> bytes | None:
        """As in `PlainClient`. The broker's first token costs some milliseconds of computation."""
        if self._signature is None:
            return self._prove(bytes(token))
        self._check(bytes(token), self._signature)
        return None

    def _prove(self, token: bytes) -> bytes:
        match = _SERVER_FIRST.fullmatch(token)
        if match is None or not match[1].startswith(self._nonce) or len(match[1]) == len(self._nonce):
            raise TokenRefusedError("the broker's SCRAM challenge cannot be read")
        iterations = int(match[3])
        if not SCRAM_ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
            raise TokenRefusedError(
                f"the broker asks for {iterations} SCRAM iterations, not {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX}"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _decoded(match[2]), iterations)
        client_key = self._hmac(salted, b"Client Key")
        final = b"c=biws,r=" + match[1]
        auth_message = b",".join((self._first, token, final))
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), auth_message)
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), auth_message)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return final + b",p=" + base64.b64encode(proof)

    def _check(self, token: bytes, signature: bytes) -> None:
        match = _SERVER_FINAL.fullmatch(token)
        if match is None or not hmac.compare_digest(_decoded(match[1]), signature):
            raise TokenRefusedError("the broker could not prove that it knows the password")

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


SaslClient = PlainClient | BearerClient | ScramClient


def client_of(mechanism: str, username: str, secret: str, nonce: str) -> SaslClient:
    """Return the client's side of one exchange; `secret` is a password, or the OAUTHBEARER token, which contains the user."""
    if mechanism == PLAIN:
        return PlainClient(username, secret)
    if mechanism == OAUTHBEARER:
        return BearerClient(secret)
    return ScramClient(mechanism, username, secret, nonce)


def _refuse_more(token: Buffer) -> None:
    if len(token):
        raise TokenRefusedError("the broker rejected the token")


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise TokenRefusedError("the broker's SCRAM token cannot be read") from None
