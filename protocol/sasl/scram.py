"""SCRAM-SHA-256 and SCRAM-SHA-512. Source: Kafka 3.8 `ScramMessages`, `ScramFormatter`, `ScramSaslServer`; RFC 5802."""

import re
from typing import Final

from protocol.primitives import Buffer
from protocol.sasl.observer import Progress, TokenObserver
from protocol.sasl.plain import name_of

_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = rb"[\x01-\x2b\x2d-\x7f]+"
_NONCE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>" + _NAME + rb"))?,(?:m=" + _VALUE + rb",)?n=(?P<name>" + _NAME + rb"),r=" + _NONCE
    + rb"(?P<extensions>(?:,[A-Za-z]+=" + _VALUE + rb")*)"
)  # fmt: skip
_TOKEN_AUTH: Final = re.compile(rb",tokenauth=(?i:true)(?:,|\Z)")

_FIRST: Final = b"r="
_SUCCESS: Final = b"v="
_ROUNDS: Final = 2


class ScramObserver(TokenObserver):
    """Two tokens, two responses: `r=` is the first round, `v=` the broker's signature."""

    __slots__ = ("_challenged",)

    def __init__(self) -> None:
        super().__init__()
        self._challenged = False

    def answered(self, token: Buffer) -> Progress:
        """Success is the broker's signature in answer to the second token."""
        mark = bytes(token[:2])
        if self.rounds == 1 and mark == _FIRST:
            self._challenged = True
        elif mark == _SUCCESS and self.rounds == _ROUNDS and self._challenged:
            return Progress.SUCCEEDED
        return Progress.GOES_ON

    def _claimed(self, token: Buffer) -> str | None:
        match = _CLIENT_FIRST.fullmatch(token)
        if match is None:
            return None
        name = bytes(match["name"]).replace(b"=2C", b",").replace(b"=3D", b"=")
        authzid = match["authzid"]
        if authzid is not None and bytes(authzid) != name:  # compared as sent, as the broker does
            return None
        self.is_delegation_token = _TOKEN_AUTH.search(match["extensions"]) is not None
        return name_of(name)

    def _may_follow(self, token: Buffer) -> bool:
        return self.rounds == _ROUNDS
