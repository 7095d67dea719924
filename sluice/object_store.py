"""Opens a directory of an object store by its URL, with the file systems of pyarrow.

Credentials, region and endpoint come from where the store's own tools take them: variables of the environment such as
`AWS_ACCESS_KEY_ID` and `AWS_ENDPOINT_URL`, a role of the machine, or the query of the URL.
"""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""Schemes of URLs, and those of pyarrow. Hadoop writes `s3a` for S3."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GS: Final = "gs"
_GS_RETRY: Final = "retry_limit_seconds"
_GS_RETRY_S: Final = 60
"""Without a limit, a request without valid credentials is repeated for 15 minutes."""


class ObjectStoreError(Exception):
    """A URL names no object store that can be opened. The message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A directory of an object store.

    Attributes:
        url: as it was written, perhaps with credentials.
        name: the URL for messages, without credentials and query.
        files: the file system, a `pyarrow.fs.FileSystem`.
        root: path of the directory in the file system.
    """

    url: str
    name: str
    files: Any
    root: str

    def path(self, below: str) -> str:
        """Return the path in the file system of a path below the directory; "" is the directory."""
        return f"{self.root}/{below}" if below else self.root


def is_url(text: str) -> bool:
    """Whether a text is a URL of another file system than this machine's."""
    return _URL.match(text) is not None and not text.startswith("file://")


def shown_url(url: str) -> str:
    """Return a URL without credentials, query and final slashes, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2] if parts.password else parts.netloc}{parts.path}".rstrip("/")


def open_object_store(url: str) -> ObjectStore:
    """Open a directory of an object store. No request is sent.

    Raises:
        ObjectStoreError: the URL is invalid, or pyarrow has no file system for it.
    """
    import pyarrow as pa
    from pyarrow import fs

    name, parts = shown_url(url), urlsplit(url)
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ObjectStoreError(f"{name}: not a URL of an object store; write s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://...")
    query = parts.query
    if scheme == _GS and _GS_RETRY not in query:
        query = f"{query}&{_GS_RETRY}={_GS_RETRY_S}".lstrip("&")
    try:
        files, root = fs.FileSystem.from_uri(parts._replace(scheme=scheme, query=query).geturl())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ObjectStoreError(f"{name}: cannot be opened ({first_line(error)}); correct the URL") from error
    return ObjectStore(url, name, files, root.rstrip("/"))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return next(iter(str(error).splitlines()), type(error).__name__)
