"""Marks of file sets to send to the topic: each is named like its file set, and contains the path of the manifest."""

from __future__ import annotations

import os
from pathlib import Path

from metering_format.places import SEGMENTS
from proxy.base.files import put_bytes
from proxy.metering.layout import FACTS_SUFFIX, UNPUBLISHED_SUFFIX


def put_mark(directory: Path, file_set: str, manifest: Path) -> None:
    """Mark a file set before its manifest is written, so that it is sent even when the process ends."""
    put_bytes(directory / SEGMENTS / (file_set + UNPUBLISHED_SUFFIX), os.fsencode(manifest.relative_to(directory)))


def marks_of(directory: Path, proxy_id: str) -> list[Path]:
    """Return the marks of one proxy in order, without those that still have a segment, since their file sets are incomplete."""
    marks = sorted((directory / SEGMENTS).glob(f"*{UNPUBLISHED_SUFFIX}"))
    return [mark for mark in marks if f"/proxy={proxy_id}/" in named_by(mark) and not _segment_of(mark).exists()]


def named_by(mark: Path) -> str:
    """Return the path of a mark's manifest below the directory."""
    return os.fsdecode(mark.read_bytes())


def _segment_of(mark: Path) -> Path:
    return mark.with_name(mark.name.removesuffix(UNPUBLISHED_SUFFIX) + FACTS_SUFFIX)
