"""The files of the live page, as the package has them. They hold no data, and every client that reaches the port may read them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "ui"
PAGE: Final = "index.html"
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content-Security-Policy of the page: own files only, nothing inline, and no text becomes markup."""
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class UiFile(NamedTuple):
    """A file of the page."""

    body: bytes
    content_type: str


class UiFiles:
    """Reads the files once; their names are those that the package has, so that a path cannot lead elsewhere."""

    def __init__(self) -> None:
        self._files: dict[str, UiFile] = {}

    def get(self, name: str) -> UiFile | None:
        """Return a file by its name; None: there is none. In a thread."""
        if not self._files:
            paths = (path for path in FOLDER.rglob("*") if path.suffix in _TYPES)
            self._files = {path.relative_to(FOLDER).as_posix(): UiFile(path.read_bytes(), _TYPES[path.suffix]) for path in paths}
        return self._files.get(name)
