"""Merges the file sets of each hour that has ended.

The files of a merged file set are written first. Then its manifest replaces that of its first part, atomically, and names all parts. The
files and manifests of the parts are removed last, or by the next call after an interruption: readers leave out parts that a manifest names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.manifest import FileEntry, Manifest, manifest_text
from metering_format.places import MANIFESTS
from proxy.base.files import TEMPORARY, put, put_bytes, remove
from proxy.metering.compaction.file_sets import FileSet, file_sets_of, groups_of, merged_parts, read_file_set
from proxy.metering.compaction.merge import merged_manifest, merged_table
from proxy.metering.file_names import left_files, next_name
from proxy.metering.files import hashed, write_parquet
from proxy.metering.layout import check_readable
from proxy.metering.locks import changing

DECISIONS_MAX: Final = 2_000_000
"""Default limit of the decisions of a merged file set: that of a file set that the proxy writes."""


@dataclass(slots=True)
class CompactResult:
    """Number of file sets before and after, of the bytes of their files, and a line for each file set that cannot be merged."""

    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    problems: list[str] = field(default_factory=list)


class DamagedError(Exception):
    """A file differs from its manifest; the text is one line."""


def compact(directory: Path, now_ms: int, decisions_max: int = DECISIONS_MAX) -> CompactResult:
    """Merge consecutive file sets of a run and hour. The current hour is left alone.

    Args:
        directory: the metering directory.
        now_ms: wall-clock time.
        decisions_max: limit of the decisions of a merged file set.

    Raises:
        OSError: a file cannot be read or written. What was merged before is complete, and the call can be repeated.
    """
    done = CompactResult()
    check_readable(directory)
    with changing(directory):
        found = list(file_sets_of(directory))
        left = merged_parts(found)
        _remove(directory, left)
        found = [one for one in found if one not in left]
        _remove_left_files(directory, found)
    done.before, done.bytes_before = len(found), sum(one.bytes for one in found)
    done.after, done.bytes_after = done.before, done.bytes_before
    for group in groups_of(directory, found, now_ms, decisions_max):
        with changing(directory):
            if any(read_file_set(one.path) != one for one in group):  # retention or `forget` has changed it meanwhile
                continue
            try:
                merged = _merge(directory, group)
            except DamagedError as error:
                done.problems.append(str(error))
                continue
        done.after -= len(group) - 1
        done.bytes_after += merged - sum(one.bytes for one in group)
    return done


def _remove(directory: Path, found: Sequence[FileSet]) -> None:
    for one in found:
        remove(one.path, *(directory / entry.path for entry in one.manifest.files))


def _remove_left_files(directory: Path, found: Sequence[FileSet]) -> None:
    """Remove files of the parts of merged file sets: an interrupted call has removed their manifests."""
    for one in found:
        if one.manifest.merged:
            named = {str(directory / entry.path) for entry in one.manifest.files}
            places = {Path(name).parent for name in named}
            files = (str(path) for place in places for path in place.glob("*.parquet"))
            remove(*map(Path, left_files(files, one.file_sets, named)))


def _merge(directory: Path, group: Sequence[FileSet]) -> int:
    """Replace file sets by one; return the bytes of its files.

    Raises:
        DamagedError: a file differs from its manifest. Nothing was changed.
    """
    first = group[0]
    manifest = write_merged(directory, group, next_name)
    put_bytes(first.path, manifest_text(manifest))
    remove(*(directory / entry.path for entry in first.manifest.files))
    _remove(directory, group[1:])
    return sum(entry.bytes for entry in manifest.files)


def write_merged(directory: Path, group: Sequence[FileSet], renamed: Callable[[str], str]) -> Manifest:
    """Write the files of a merged file set, and return its manifest.

    Args:
        directory: the metering directory.
        group: the file sets to merge, in order.
        renamed: returns the name of a file of the merged file set for that of the same table in the first one; no file has it.

    Raises:
        DamagedError: a file differs from its manifest. Nothing was written.
    """
    tables = _tables(directory, group)
    live_ms = max(((row["num_samples"] + 1) * row["window_ms"] for row in _sensors(tables.get("dim_group"))), default=0)
    files = []
    for name, table in tables.items():
        path = _place(directory, name, group[0], renamed)
        files.append(_write(directory, name, path, table, live_ms if name == "samples" else 0))
    return merged_manifest([(one.manifest, one.sha256) for one in group], files)


def _tables(directory: Path, group: Sequence[FileSet]) -> dict[str, pa.Table]:
    parts: dict[str, list[pa.Table]] = {}
    for one in group:
        for entry in one.manifest.files:
            path = directory / entry.path
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                data = b""
            if hashlib.sha256(data).hexdigest() != entry.sha256:
                raise DamagedError(f"{path}: is missing or differs from {one.path.name}, so its hour is not merged; restore it")
            parts.setdefault(entry.table, []).append(pq.read_table(pa.BufferReader(data)))
    return {name: merged_table(name, tables) for name, tables in parts.items()}


def _sensors(groups: pa.Table | None) -> list[dict[str, Any]]:
    return [] if groups is None else groups.select(["num_samples", "window_ms"]).to_pylist()


def _place(directory: Path, name: str, first: FileSet, renamed: Callable[[str], str]) -> Path:
    """Return the path of a table: beside the first file of the same table."""
    own = next((entry.path for entry in first.manifest.files if entry.table == name), None)
    hour = first.path.parent.relative_to(directory / MANIFESTS)
    path = Path(name, *hour.parts, f"{first.manifest.file_set}.parquet") if own is None else Path(own)
    return path.with_name(renamed(path.name))


def _write(directory: Path, name: str, place: Path, table: pa.Table, live_ms: int) -> FileEntry:
    path = directory / place
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(TEMPORARY + path.name)
    write_parquet(table, temporary, live_ms=live_ms)
    put(path, temporary)
    return FileEntry(name, str(place), len(table), **hashed(path))
