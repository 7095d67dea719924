"""One claim of a JSON object, read without making anything of the others."""

import json
import re
from typing import Final

from protocol.primitives import Buffer

DEPTH_MAX: Final = 32
VALUES_MAX: Final = 1_000
"""Keys and values together; tokens of identity providers have some dozens, one with groups some hundreds."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR: Final = re.compile(rb"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class _DoubtError(Exception):
    """Two readers of JSON might not agree on this."""


def read_claim(payload: Buffer, claim: str) -> str | None:
    """Return the text that the object `payload` has under `claim`.

    None when it has none, when it is no text, and when readers of JSON might disagree: a key that stands twice or is written with
    escapes, anything outside the standard, more than 32 levels. Nor of one with more than 1,000 keys and values, which takes long.
    """
    try:
        value = _Scanner(payload).find(b'"' + claim.encode() + b'"')
        text = None if value is None else json.loads(bytes(payload[value[0] : value[1]]))
    except (_DoubtError, ValueError):
        return None
    return text if isinstance(text, str) and _is_text(text) else None


def _is_text(text: str) -> bool:
    """Return whether a text can be written as UTF-8: it holds no half of a pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Scanner:
    """Goes over a JSON text; no recursion, no copy but of the keys of the outermost object."""

    __slots__ = ("_at", "_data", "_left")

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._at = 0
        self._left = VALUES_MAX

    def find(self, key: bytes) -> tuple[int, int] | None:
        """Return where the value of `key` stands; None when it is not there.

        Raises:
            _DoubtError: this is not one JSON object, or not beyond doubt.
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
        """Go past `sign` if it is next, and past the space before it."""
        self._space()
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _expect(self, sign: bytes) -> None:
        if not self._took(sign):
            raise _DoubtError
