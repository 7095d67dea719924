"""Runs that were killed without an open segment: between two segments, or while the disk failed.

Their last decisions are in their mapped buffer. An empty segment is created, so that these decisions are counted as those of other runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from metering_format.manifest import RUN_KEYS
from metering_format.places import MANIFESTS, SEGMENTS, file_set_name
from proxy.base.files import remove
from proxy.meter.buffer import is_in_use
from proxy.metering.layout import FACTS_SUFFIX, PENDING_SUFFIX, SHARED_MEMORY, pending_prefix
from proxy.metering.segment import SegmentWriter


def end_runs(directory: Path, is_ours: Callable[[str], bool]) -> list[str]:
    """Create a last segment for each run that ended without one; return the names of the segments. Empty buffers are removed.

    Args:
        is_ours: whether no other running process has a proxy id, so that only this process converts its files.

    Raises:
        OSError: the disk fails; the buffers stay.
    """
    begun = []
    for path in unended(directory):
        last = _last_manifest(directory, _run_id(directory, path))
        if last is not None and not is_ours(last[1]["proxy_id"]):
            continue
        if last is None or last[1]["final"]:
            remove(path)
        else:
            begun.append(_begin(directory, *last))
    return begun


def unended(directory: Path) -> list[Path]:
    """Return the buffers of processes that ended without a segment."""
    found = sorted(SHARED_MEMORY.glob(f"{pending_prefix(directory)}*{PENDING_SUFFIX}"))
    return [path for path in found if not _has_segment(directory, _run_id(directory, path)) and not is_in_use(path)]


def _run_id(directory: Path, path: Path) -> str:
    return path.name.removeprefix(pending_prefix(directory)).removesuffix(PENDING_SUFFIX)


def _has_segment(directory: Path, run_id: str) -> bool:
    return any((directory / SEGMENTS).glob(f"{run_id}-*{FACTS_SUFFIX}"))


def _last_manifest(directory: Path, run_id: str) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the content of the last file set of a run."""
    found = max(directory.glob(f"{MANIFESTS}/schema=*/proxy=*/**/{run_id}-*.json"), key=lambda path: path.stem, default=None)
    if found is None:
        return None
    manifest = msgspec.json.decode(found.read_bytes())
    merged = manifest.get("merged", ())
    return (merged[-1]["file_set"] if merged else found.stem), manifest


def _begin(directory: Path, file_set: str, manifest: dict[str, Any]) -> str:
    first_seq = manifest["last_seq"] + 1
    parts = len(manifest.get("merged", ())) or 1
    part = manifest["part"] + parts if first_seq == manifest["first_seq"] else 0
    place = {"first_seq": first_seq, "part": part, "opened_ts_ms": manifest["last_ts_ms"], "previous": file_set}
    begun = file_set_name(manifest["run_id"], first_seq, part)
    header = {name: manifest[name] for name in RUN_KEYS}
    SegmentWriter(directory / SEGMENTS / begun, [{"run": {**header, **place}}]).close()
    return begun
