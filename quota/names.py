"""Names that clients choose, short enough to be kept: up to 256 bytes as they are, longer ones as their beginning and a digest.

A client may send names of 32 KiB, and what it sends may not decide how much memory a table of 50,000 entries takes. The short form is
longer than 256 bytes, so no name that is kept as it is can be equal to one. A real name that looks like a short form is longer than
256 bytes too and gets a short form of its own; `KeptName` marks what was shortened already.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

NAME_BYTES_MAX: Final = 256
_UTF8_BYTES_MAX: Final = 4
"""Of one character."""


class KeptName(str):
    """A long name in the form in which it is kept, its first 256 bytes, `~` and the SHA-256 of all of it, or text made of that."""

    __slots__ = ()


def kept_name(name: str) -> str:
    """Return a name as it is kept in tables and shown: at most 321 bytes, the same for the same name, and different for different ones."""
    if len(name) <= NAME_BYTES_MAX // _UTF8_BYTES_MAX or isinstance(name, KeptName):
        return name
    return _shortened(name)


@lru_cache(maxsize=16)
def _shortened(name: str) -> str:
    """As `kept_name`. One request with a new name asks for it several times in a row."""
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) <= NAME_BYTES_MAX:
        return name
    beginning = encoded[:NAME_BYTES_MAX].decode("utf-8", "ignore")
    padding = "~" * (NAME_BYTES_MAX - len(beginning.encode()))  # for a character that was cut: the form is never as short as a name
    return KeptName(f"{beginning}{padding}~{hashlib.sha256(encoded).hexdigest()}")


def read_kept_name(text: str) -> str:
    """Return a name that was read from where only kept names stand, such as a file of metering: nothing shortens it again."""
    return KeptName(text) if len(text.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX else text


def is_shortened(names: Iterable[str]) -> bool:
    """Return whether any of these names was too long to be kept as it is."""
    return any(isinstance(name, KeptName) for name in names)
