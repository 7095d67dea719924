"""Makes text from clients and files (client-ids, users, keys) safe to print: no control, escape or direction characters."""

import re
from typing import Final

# C0, DEL and C1 (ANSI escapes begin there); soft hyphen; characters that turn, hide or break a line; lone surrogates; tags.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\uffff\U000e0000-\U000e0fff]"
)


def printable(text: str, length_max: int) -> str:
    """Return `text` with unsafe characters as `\\u0000` and cut to `length_max` characters, an ellipsis included."""
    safe = _UNSAFE.sub(_escaped, text[:length_max])
    if len(safe) <= length_max and len(text) <= length_max:
        return safe
    return safe[: length_max - 1] + "…"


def _escaped(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
