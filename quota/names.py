"""Names that clients choose, shortened for storage: up to 256 bytes unchanged, longer ones as their beginning and a digest.

A client may send names of 32 KiB, and a table of 50,000 entries must not grow with them. The short form is
longer than 256 bytes, so it never equals an unshortened name. A real name that looks like a short form is longer than
256 bytes too and gets a short form of its own; `KeptName` marks names that are already shortened.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

NAME_BYTES_MAX: Final = 256
_UTF8_BYTES_MAX: Final = 4
"""Maximum length of one character."""


class KeptName(str):
    """A shortened name, that is its first 256 bytes, `~` and the SHA-256 of all of it, or text that contains one."""

    __slots__ = ()


def kept_name(name: str) -> str:
    """Return a name in the form used in tables and output: at most 321 bytes. Different names give different results."""
    if len(name) <= NAME_BYTES_MAX // _UTF8_BYTES_MAX or isinstance(name, KeptName):
        return name
    return _shortened(name)


@lru_cache(maxsize=16)
def _shortened(name: str) -> str:
    """As `kept_name`, cached: one request with a new name shortens it several times in a row."""
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) <= NAME_BYTES_MAX:
        return name
    beginning = encoded[:NAME_BYTES_MAX].decode("utf-8", "ignore")
    padding = "~" * (NAME_BYTES_MAX - len(beginning.encode()))  # a cut character leaves a gap
    return KeptName(f"{beginning}{padding}~{hashlib.sha256(encoded).hexdigest()}")


def read_kept_name(text: str) -> str:
    """Return a name read from a place that holds only shortened names, such as a metering file; it is not shortened again."""
    return KeptName(text) if len(text.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX else text


def is_shortened(names: Iterable[str]) -> bool:
    """Return whether any of these names was shortened."""
    return any(isinstance(name, KeptName) for name in names)
