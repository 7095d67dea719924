"""OAUTHBEARER with a JWT. Source: Kafka 3.8 `OAuthBearerClientInitialResponse`, `OAuthBearerSaslServer`; RFC 7628.

The broker verifies the token, not Sluice: its claim becomes a name only after the broker's success.
"""

import binascii
import re
from typing import Final

from protocol.primitives import Buffer
from protocol.sasl.claim import read_claim
from protocol.sasl.observer import Progress, TokenObserver
from protocol.sasl.plain import name_of

DEFAULT_CLAIM: Final = "sub"
"""The broker's `sasl.oauthbearer.sub.claim.name`."""

_PAIR: Final = rb"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_INITIAL: Final = re.compile(rb"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01(?P<pairs>(?:" + _PAIR + rb")*)\x01")
_AUTH: Final = re.compile(rb"(?<=\x01)auth=(?P<value>[^\x01]*)\x01")
_BEARER: Final = re.compile(rb"(?i:bearer) +[A-Za-z0-9_-]+\.(?P<payload>[A-Za-z0-9_-]+)\.[A-Za-z0-9_-]*")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Java's `String.trim` removes. Some validators trim a name, some do not."""


class OAuthBearerObserver(TokenObserver):
    """One token; success is a response without a token. A refusal has no error code either, but has JSON."""

    __slots__ = ("_claim",)

    def __init__(self, claim: str = DEFAULT_CLAIM) -> None:
        super().__init__()
        self._claim = claim

    def answered(self, token: Buffer) -> Progress:
        """Success is a response without a token to the first token of the client."""
        return Progress.SUCCEEDED if self.rounds == 1 and not len(token) else Progress.GOES_ON

    def _claimed(self, token: Buffer) -> str | None:
        whole = _INITIAL.fullmatch(token)
        if whole is None:
            return None
        values = list(_AUTH.finditer(token, *whole.span("pairs")))
        if len(values) != 1:
            return None
        bearer = _BEARER.fullmatch(token, *values[0].span("value"))
        if bearer is None:
            return None
        name = self._named(token, *bearer.span("payload"))
        authzid = whole["authzid"]
        if name is None or (authzid is not None and bytes(authzid) != name.encode()):
            return None
        return name

    def _named(self, token: Buffer, at: int, end: int) -> str | None:
        payload = _decoded(bytes(token[at:end]))
        name = None if payload is None else read_claim(payload, self._claim)
        if name is None or name != name.strip(_TRIMMED):
            return None
        return name_of(name.encode())


def _decoded(encoded: bytes) -> bytes | None:
    """Return the claims, which are no credential without the signature; None unless this is base64url in its one proper form."""
    encoded = encoded.translate(_FROM_URL) + b"=" * (-len(encoded) % 4)
    try:
        payload = binascii.a2b_base64(encoded, strict_mode=True)
    except binascii.Error:
        return None
    return payload if binascii.b2a_base64(payload, newline=False) == encoded else None
