"""Where finished metering files are copied to."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from proxy.base.units import SIZE_REMEDY, read_size
from proxy.config.toml_reader import Reader
from sluice.object_store import SCHEMES, is_url

_URL_REMEDY: Final = "a URL of a directory in an object store, such as s3://BUCKET/metering"


def _read_url(value: object) -> str:
    """Return the URL.

    Raises:
        ValueError: it is none, or of another scheme.
    """
    if not isinstance(value, str) or not is_url(value):
        raise ValueError("is not a URL")
    scheme, _, place = value.partition("://")
    if scheme not in SCHEMES:
        raise ValueError(f'has the scheme "{scheme}", which is none of {", ".join(SCHEMES)}')
    if urlsplit(value).password is not None:
        raise ValueError("has a password, and credentials come from the environment or the role of the machine")
    if not place.partition("?")[0].strip("/"):
        raise ValueError("names no bucket")
    return value


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An object store to which finished file sets are copied."""

    url: Annotated[str, Reader(_read_url, _URL_REMEDY)]
    local_bytes_max: Annotated[int | None, Reader(read_size, SIZE_REMEDY)] = None
    """Of all finished files of this proxy on this machine, also those that wait for their upload. None: no limit."""
