"""Marks of file sets that are to be sent to the topic: each is named like its file set, and holds the path of the manifest."""

from __future__ import annotations

import os
from pathlib import Path

from metering_format.places import SEGMENTS
from proxy.base.files import put_bytes
from proxy.metering.layout import FACTS_SUFFIX, UNPUBLISHED_SUFFIX


def put_mark(directory: Path, file_set: str, manifest: Path) -> None:
    """Mark a file set whose manifest is about to be put: from then on nothing that ends us can keep it from being sent."""
    put_bytes(directory / SEGMENTS / (file_set + UNPUBLISHED_SUFFIX), os.fsencode(manifest.relative_to(directory)))


def marks_of(directory: Path, proxy_id: str) -> list[Path]:
    """Return the marks of one proxy, in order; not of segments that are still there: their file sets are not whole."""
    marks = sorted((directory / SEGMENTS).glob(f"*{UNPUBLISHED_SUFFIX}"))
    return [mark for mark in marks if f"/proxy={proxy_id}/" in named_by(mark) and not _segment_of(mark).exists()]


def named_by(mark: Path) -> str:
    """Return the manifest that a mark is of, below the directory."""
    return os.fsdecode(mark.read_bytes())


def _segment_of(mark: Path) -> Path:
    return mark.with_name(mark.name.removesuffix(UNPUBLISHED_SUFFIX) + FACTS_SUFFIX)
