"""The form of client names in the files: unchanged, as keyed hashes, or missing."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final, Literal

from proxy.base.errors import StartError
from proxy.telemetry.client_usage import OTHER

NameForm = Literal["plain", "keyed", "none"]
KEY_BYTES_MIN: Final = 16
KEY_BYTES_MAX: Final = 4_096
DIGITS: Final = 32
"""Number of hexadecimal digits of a hash: 128 bits."""


class Names:
    """Converts names to the form in the files.

    Args:
        key: key of the hashes; only for `keyed`.
    """

    def __init__(self, form: NameForm = "plain", key: bytes = b"") -> None:
        self.form: NameForm = form
        self._key = key

    def __call__(self, name: str | None) -> str | None:
        """Return the form of a name; the empty name and the name for all others stay unchanged."""
        if self.form == "plain" or not name or name == OTHER:
            return None if name is None else str(name)  # a long name is stored in a shortened form, which is a text that JSON can hold
        if self.form == "none":
            return None
        return hmac.new(self._key, name.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:DIGITS]


def names_of(form: NameForm, key_file: Path | None) -> Names:
    """Return the conversion for a configuration.

    Raises:
        StartError: the key cannot be read, or is too short.
    """
    if form != "keyed":
        return Names(form)
    assert key_file is not None
    return Names(form, read_key(key_file))


def read_key(key_file: Path) -> bytes:
    """Read the key of keyed names; white space around it is ignored.

    Raises:
        StartError: the key cannot be read, or has an invalid length.
    """
    try:
        with key_file.open("rb") as file:
            key = file.read(KEY_BYTES_MAX + 1).strip()
    except OSError as error:
        raise StartError(f"metering.key_file: {key_file} cannot be read: {error.strerror or error}") from error
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise StartError(f"metering.key_file: {key_file} has {len(key)} bytes; a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX}")
    return key
