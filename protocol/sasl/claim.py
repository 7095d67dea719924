"""Reads one claim of a JSON object without building the others."""

import json
import re
from typing import Final

from protocol.primitives import Buffer

DEPTH_MAX: Final = 32
VALUES_MAX: Final = 1_000
"""Limit on keys and values together; tokens of identity providers have some dozens, one with groups some hundreds."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR: Final = re.compile(rb"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class _DoubtError(Exception):
    """JSON parsers may read the text differently."""


def read_claim(payload: Buffer, claim: str) -> str | None:
    """Return the string that the object `payload` has under `claim`.

    None when the claim is absent or not a string, and when JSON parsers might disagree: duplicate keys, keys with
    escapes, non-standard syntax, more than 32 levels. Also None with more than 1,000 keys and values, which would take long.
    """
    try:
        value = _Scanner(payload).find(b'"' + claim.encode() + b'"')
        text = None if value is None else json.loads(bytes(payload[value[0] : value[1]]))
    except (_DoubtError, ValueError):
        return None
    return text if isinstance(text, str) and _is_text(text) else None


def _is_text(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8, that is, contains no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Scanner:
    """Scans a JSON text without recursion; copies only the keys of the outermost object."""

    __slots__ = ("_at", "_data", "_left")

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._at = 0
        self._left = VALUES_MAX

    def find(self, key: bytes) -> tuple[int, int] | None:
        """Return the position of the value of `key`; None when the key is absent.

        Raises:
            _DoubtError: the text is not one JSON object, or is ambiguous.
        """
        self._space()
        self._expect(b"{")
        found: tuple[int, int] | None = None
        seen: set[bytes] = set()
        if not self._took(b"}"):
            while True:
                name = self._key()
                if name in seen:
                    raise _DoubtError
                seen.add(name)
                start = self._at
                self._skip_value()
                if name == key:
                    found = (start, self._at)
                if not self._took(b","):
                    break
            self._expect(b"}")
        self._space()
        if self._at != len(self._data):
            raise _DoubtError
        return found

    def _key(self) -> bytes:
        self._space()
        start = self._at
        self._match(_STRING)
        name = bytes(self._data[start : self._at])
        if b"\\" in name:
            raise _DoubtError
        self._expect(b":")
        self._space()
        return name

    def _skip_value(self) -> None:
        closers = bytearray()
        while True:
            self._space()
            if self._took(b"{"):
                closers += b"}"
                if not self._took(b"}"):
                    self._key()
                    continue
                closers.pop()
            elif self._took(b"["):
                closers += b"]"
                if not self._took(b"]"):
                    continue
                closers.pop()
            else:
                self._match(_STRING if self._next() == b'"' else _SCALAR)
            if len(closers) > DEPTH_MAX:
                raise _DoubtError
            while closers and not self._took(b","):
                self._expect(bytes(closers[-1:]))
                closers.pop()
            if not closers:
                return
            if closers[-1:] == b"}":
                self._key()

    def _next(self) -> bytes:
        return bytes(self._data[self._at : self._at + 1])

    def _space(self) -> None:
        match = _SPACE.match(self._data, self._at)
        assert match is not None
        self._at = match.end()

    def _match(self, pattern: re.Pattern[bytes]) -> None:
        self._left -= 1
        match = pattern.match(self._data, self._at) if self._left >= 0 else None
        if match is None:
            raise _DoubtError
        self._at = match.end()

    def _took(self, sign: bytes) -> bool:
        """Skip `sign`, and white space before it; return whether it was there."""
        self._space()
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _expect(self, sign: bytes) -> None:
        if not self._took(sign):
            raise _DoubtError
