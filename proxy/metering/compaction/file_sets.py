"""Finds the file sets of a directory, and those of them that can be merged."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from metering_format.manifest import Manifest
from metering_format.places import KIND, MANIFESTS, SCHEMA_VERSIONS, SEGMENTS, is_inside
from proxy.base.files import TEMPORARY
from proxy.metering.layout import UNPUBLISHED_SUFFIX

BYTES_MAX: Final = 256 * 2**20
"""Limit of the bytes of a merged file set. They are read into memory."""
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class FileSet:
    """A file set: the path of its manifest, the manifest, and the SHA-256 of its text."""

    path: Path
    manifest: Manifest
    sha256: str

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.manifest.files)

    @property
    def file_sets(self) -> set[str]:
        """The names of the file sets that it has: its own, and those of its parts."""
        return {self.manifest.file_set, *self.manifest.parts}

    @property
    def decisions(self) -> int:
        return self.manifest.last_seq - self.manifest.first_seq + 1


def file_sets_of(directory: Path) -> Iterator[FileSet]:
    """Yield the file sets whose manifests are valid, by path."""
    for path in sorted((directory / MANIFESTS).rglob("*.json")):
        found = None if path.name.startswith(TEMPORARY) else read_file_set(path)
        if found is not None:
            yield found


def read_file_set(path: Path) -> FileSet | None:
    """Return a manifest; None if it is invalid, which `sluice meter verify-manifests` reports."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        text = path.read_bytes()
        manifest = msgspec.json.decode(text, type=Manifest)
        if manifest.kind == KIND and manifest.schema in SCHEMA_VERSIONS and all(is_inside(entry.path) for entry in manifest.files):
            return FileSet(path, manifest, hashlib.sha256(text).hexdigest())
    return None


def merged_parts(found: Sequence[FileSet]) -> list[FileSet]:
    """Return the file sets that another one of them has: an interrupted call has merged them and left them."""
    parts = {(one.path.parent, part.file_set) for one in found for part in one.manifest.merged if part.file_set != one.manifest.file_set}
    return [one for one in found if (one.path.parent, one.manifest.file_set) in parts]


def groups_of(directory: Path, found: Sequence[FileSet], now_ms: int, decisions_max: int) -> Iterator[list[FileSet]]:
    """Yield the groups of file sets to merge, two or more each."""
    group: list[FileSet] = []
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


def _may_be_merged(directory: Path, one: FileSet, now_ms: int) -> bool:
    """Whether its hour has ended, no crash cut it off, no user was forgotten in it, and the topic has it."""
    manifest = one.manifest
    has_ended = max(manifest.first_ts_ms, manifest.last_ts_ms) // HOUR_MS < now_ms // HOUR_MS
    is_published = not (directory / SEGMENTS / (manifest.file_set + UNPUBLISHED_SUFFIX)).exists()
    return has_ended and is_published and not manifest.truncated and not manifest.replaces


def _continues(before: FileSet, one: FileSet) -> bool:
    """Whether a file set is in the same hour and run, and the next one."""
    ours, theirs = before.manifest, one.manifest
    return (
        before.path.parent == one.path.parent
        and (ours.run_id, ours.settings, ours.quota_config_sha256) == (theirs.run_id, theirs.settings, theirs.quota_config_sha256)
        and theirs.previous == ours.last_file_set
        and theirs.first_seq == ours.last_seq + 1
    )


def _fits(group: Sequence[FileSet], decisions_max: int) -> bool:
    return sum(one.decisions for one in group) <= decisions_max and sum(one.bytes for one in group) <= BYTES_MAX
