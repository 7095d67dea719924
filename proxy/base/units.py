"""Sizes in the usual notation: parses `1048576`, `"1MiB"`, `"10MB"`."""

import re
from typing import Final

SIZE_MAX: Final = 2**63 - 1
"""The largest number of bytes that Kafka's own settings can hold (a Java long)."""

SIZE_REMEDY: Final = 'a whole number of bytes, such as 1048576, "1MiB" or "10MB"'

_FACTORS: Final = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
_SIZE: Final = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))? ?([A-Za-z]{0,3})")


def read_size(value: object) -> int:
    """Return the number of bytes in `value`, 1 to `SIZE_MAX`.

    Raises:
        ValueError: not a size, not whole, not above zero or too large; the text says which, without the remedy.
    """
    size = _size_of(value)
    if size <= 0:
        raise ValueError(f"{shown(value)} is not above 0")
    if size > SIZE_MAX:
        raise ValueError(f"{shown(value)} is more than {SIZE_MAX}")
    return size


def shown(value: object) -> str:
    """Return `value` as it would be written in TOML, cut to 80 characters: what error lines quote."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value[:80]}"'
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return str(value)[:80]


def _size_of(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{shown(value)} is not a size")
    if isinstance(value, str):
        return _size_of_text(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{shown(value)} is not a whole number")
    return int(value)


def _size_of_text(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or match[3] not in _FACTORS:
        raise ValueError(f"{shown(text)} is not a size")
    whole, part, unit = match[1], match[2] or "", match[3]
    scaled = int(whole + part) * _FACTORS[unit]
    if scaled % 10 ** len(part):
        raise ValueError(f"{shown(text)} is not a whole number of bytes")
    return int(scaled // 10 ** len(part))
