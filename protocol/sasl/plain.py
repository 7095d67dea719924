"""PLAIN: `[authzid] NUL authcid NUL password`. Source: Kafka 3.8 `PlainSaslServer`."""

import re
from typing import Final

from protocol.limits import MAX_PRINCIPAL_BYTES
from protocol.primitives import Buffer
from protocol.sasl.observer import Progress, TokenObserver

_NUL: Final = re.compile(rb"\x00")


class PlainObserver(TokenObserver):
    """One token, with one empty response."""

    __slots__ = ()

    def answered(self, token: Buffer) -> Progress:
        """Success is a response without a token."""
        return Progress.SUCCEEDED if self.rounds == 1 and not len(token) else Progress.GOES_ON

    def _claimed(self, token: Buffer) -> str | None:
        first = _find_nul(token, 0)
        second = -1 if first < 0 else _find_nul(token, first + 1)
        if second < 0 or _find_nul(token, second + 1) >= 0 or second + 1 == len(token):
            return None  # not three parts, or no password
        name = bytes(token[first + 1 : second])
        if first and token[:first] != name:
            return None  # the broker refuses to act for another user
        return name_of(name)


def name_of(name: bytes) -> str | None:
    """Return a name as the broker parses it; None when it is ambiguous."""
    if not 0 < len(name) <= MAX_PRINCIPAL_BYTES:
        return None
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _find_nul(token: Buffer, start: int) -> int:
    match = _NUL.search(token, start)
    return -1 if match is None else match.start()
