"""Merges the file sets of each hour that has ended.

The files of a merged file set are written first. Then its manifest replaces that of its first part, atomically, and names all parts. The
files and manifests of the parts are removed last, or by the next call after an interruption: readers leave out parts that a manifest names.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.manifest import FileEntry, Manifest, manifest_text
from metering_format.places import KIND, MANIFESTS, SCHEMA_VERSIONS, SEGMENTS, is_inside
from proxy.base.files import TEMPORARY, put, put_bytes, remove
from proxy.metering.compaction.merge import merged_manifest, merged_table
from proxy.metering.files import hashed, write_parquet
from proxy.metering.forget import next_name
from proxy.metering.layout import UNPUBLISHED_SUFFIX, check_readable
from proxy.metering.locks import changing

DECISIONS_MAX: Final = 2_000_000
"""Default limit of the decisions of a merged file set: that of a file set that the proxy writes."""
BYTES_MAX: Final = 256 * 2**20
"""Limit of the bytes of a merged file set. They are read into memory."""
HOUR_MS: Final = 3_600_000


@dataclass(slots=True)
class CompactResult:
    """Number of file sets before and after, of the bytes of their files, and a line for each file set that cannot be merged."""

    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    manifest: Manifest
    sha256: str

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.manifest.files)

    @property
    def decisions(self) -> int:
        return self.manifest.last_seq - self.manifest.first_seq + 1


class _DamagedError(Exception):
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
        found = _without_parts(directory, list(_manifests(directory)))
    done.before, done.bytes_before = len(found), sum(one.bytes for one in found)
    done.after, done.bytes_after = done.before, done.bytes_before
    for group in _groups(directory, found, now_ms, decisions_max):
        with changing(directory):
            if any(_found(one.path) != one for one in group):  # retention or `forget` has changed it meanwhile
                continue
            try:
                merged = _merge(directory, group)
            except _DamagedError as error:
                done.problems.append(str(error))
                continue
        done.after -= len(group) - 1
        done.bytes_after += merged - sum(one.bytes for one in group)
    return done


def _manifests(directory: Path) -> Iterator[_Found]:
    for path in sorted((directory / MANIFESTS).rglob("*.json")):
        found = None if path.name.startswith(TEMPORARY) else _found(path)
        if found is not None:
            yield found


def _found(path: Path) -> _Found | None:
    """Return a manifest; None if it is invalid, which `sluice meter verify-manifests` reports."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        text = path.read_bytes()
        manifest = msgspec.json.decode(text, type=Manifest)
        if manifest.kind == KIND and manifest.schema in SCHEMA_VERSIONS and all(is_inside(entry.path) for entry in manifest.files):
            return _Found(path, manifest, hashlib.sha256(text).hexdigest())
    return None


def _without_parts(directory: Path, found: Sequence[_Found]) -> list[_Found]:
    """Remove the file sets that an interrupted call has merged and left; return the others."""
    parts = {(one.path.parent, part.file_set) for one in found for part in one.manifest.merged if part.file_set != one.manifest.file_set}
    left = [one for one in found if (one.path.parent, one.manifest.file_set) in parts]
    _remove(directory, left)
    return [one for one in found if one not in left]


def _remove(directory: Path, found: Sequence[_Found]) -> None:
    for one in found:
        remove(one.path, *(directory / entry.path for entry in one.manifest.files))


def _groups(directory: Path, found: Sequence[_Found], now_ms: int, decisions_max: int) -> Iterator[list[_Found]]:
    """Yield the groups of file sets to merge, two or more each."""
    group: list[_Found] = []
    in_order = sorted(found, key=lambda one: (str(one.path.parent), one.manifest.run_id, one.manifest.first_seq, one.manifest.part))
    for one in in_order:
        if not _may_be_merged(directory, one, now_ms):
            continue
        if group and not (_continues(group[-1], one) and _fits([*group, one], decisions_max)):
            if len(group) > 1:
                yield group
            group = []
        group.append(one)
    if len(group) > 1:
        yield group


def _may_be_merged(directory: Path, one: _Found, now_ms: int) -> bool:
    """Whether its hour has ended, no crash cut it off, no user was forgotten in it, and the topic has it."""
    manifest = one.manifest
    has_ended = max(manifest.first_ts_ms, manifest.last_ts_ms) // HOUR_MS < now_ms // HOUR_MS
    is_published = not (directory / SEGMENTS / (manifest.file_set + UNPUBLISHED_SUFFIX)).exists()
    return has_ended and is_published and not manifest.truncated and not manifest.replaces


def _continues(before: _Found, one: _Found) -> bool:
    """Whether a file set is in the same hour and run, and the next one."""
    ours, theirs = before.manifest, one.manifest
    return (
        before.path.parent == one.path.parent
        and (ours.run_id, ours.settings, ours.quota_config_sha256) == (theirs.run_id, theirs.settings, theirs.quota_config_sha256)
        and theirs.previous == ours.last_file_set
        and theirs.first_seq == ours.last_seq + 1
    )


def _fits(group: Sequence[_Found], decisions_max: int) -> bool:
    return sum(one.decisions for one in group) <= decisions_max and sum(one.bytes for one in group) <= BYTES_MAX


def _merge(directory: Path, group: Sequence[_Found]) -> int:
    """Replace file sets by one; return the bytes of its files.

    Raises:
        _DamagedError: a file differs from its manifest. Nothing was changed.
    """
    first = group[0]
    tables = _tables(directory, group)
    live_ms = max(((row["num_samples"] + 1) * row["window_ms"] for row in _sensors(tables.get("dim_group"))), default=0)
    files = [_write(directory, name, first, table, live_ms if name == "samples" else 0) for name, table in tables.items()]
    manifest = merged_manifest([(one.manifest, one.sha256) for one in group], files)
    put_bytes(first.path, manifest_text(manifest))
    remove(*(directory / entry.path for entry in first.manifest.files))
    _remove(directory, group[1:])
    return sum(entry.bytes for entry in files)


def _tables(directory: Path, group: Sequence[_Found]) -> dict[str, pa.Table]:
    parts: dict[str, list[pa.Table]] = {}
    for one in group:
        for entry in one.manifest.files:
            path = directory / entry.path
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                data = b""
            if hashlib.sha256(data).hexdigest() != entry.sha256:
                raise _DamagedError(f"{path}: is missing or differs from {one.path.name}, so its hour is not merged; restore it")
            parts.setdefault(entry.table, []).append(pq.read_table(pa.BufferReader(data)))
    return {name: merged_table(name, tables) for name, tables in parts.items()}


def _sensors(groups: pa.Table | None) -> list[dict[str, Any]]:
    return [] if groups is None else groups.select(["num_samples", "window_ms"]).to_pylist()


def _write(directory: Path, name: str, first: _Found, table: pa.Table, live_ms: int) -> FileEntry:
    """Write a table beside the first file of the same table, under the name of the next version of that file."""
    own = next((entry.path for entry in first.manifest.files if entry.table == name), None)
    place = Path(name, *first.path.parent.relative_to(directory / MANIFESTS).parts)
    relative = place / f"{first.manifest.file_set}.parquet" if own is None else Path(own)
    relative = relative.with_name(next_name(relative.name))
    path = directory / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(TEMPORARY + path.name)
    write_parquet(table, temporary, live_ms=live_ms)
    put(path, temporary)
    return FileEntry(name, str(relative), len(table), **hashed(path))
