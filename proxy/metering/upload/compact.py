"""Merges the file sets of each hour that has ended in an object store: in a copy of those of one hour, which is then uploaded.

Only hours with several file sets, or several files of a table, are read, so a call costs what is new since the last one. As on a disk, the
files of a merged file set are written first, then its manifest replaces that of its first part, and the parts are removed last.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from metering_format.manifest import manifest_text
from proxy.metering.compaction.compact import DECISIONS_MAX, CompactResult, DamagedError, write_merged
from proxy.metering.compaction.file_sets import FileSet, file_sets_of, groups_of, merged_parts
from proxy.metering.file_names import left_files, merged_name
from proxy.metering.upload.copies import all_files, by_hour, copy_files, manifests_among
from proxy.metering.upload.file_sets import put_file_set
from proxy.metering.upload.store_files import StoreFiles

if TYPE_CHECKING:
    from sluice.object_store import ObjectStore


def compact_at(at: ObjectStore, now_ms: int, decisions_max: int = DECISIONS_MAX) -> CompactResult:
    """Merge consecutive file sets of a run and hour in an object store. The current hour is left alone.

    Args:
        at: the directory.
        now_ms: wall-clock time.
        decisions_max: limit of the decisions of a merged file set.

    Raises:
        StoreError: there is no manifest; or the store refuses, or cannot be reached. What was merged before is complete, and the call
            can be repeated.
        OSError: the copy cannot be written.
    """
    store = StoreFiles(at)
    sizes = all_files(store)
    done = CompactResult()
    for paths in by_hour(sizes).values():
        manifests = manifests_among(paths)
        if len(manifests) > 1 or (manifests and len(paths) > len({path.partition("/")[0] for path in paths})):
            with tempfile.TemporaryDirectory(prefix="sluice-compact-") as folder:
                _Hour(store, Path(folder), set(paths), done).compact(manifests, now_ms, decisions_max)
        elif manifests:
            _count(done, 1, sum(sizes[path] for path in paths if path not in manifests))
    return done


def _count(done: CompactResult, number: int, size: int) -> None:
    """Add file sets that stay, and the bytes of their files."""
    done.before, done.after = done.before + number, done.after + number
    done.bytes_before, done.bytes_after = done.bytes_before + size, done.bytes_after + size


class _Hour:
    """The file sets of a proxy of one hour.

    Args:
        store: the directory.
        copy: an empty local directory.
        paths: the files of the hour.
        done: gets what is merged.
    """

    def __init__(self, store: StoreFiles, copy: Path, paths: Set[str], done: CompactResult) -> None:
        self._store, self._copy, self._paths, self._done = store, copy, paths, done

    def compact(self, manifests: Sequence[str], now_ms: int, decisions_max: int) -> None:
        """Merge those that can be merged."""
        copy_files(self._store, manifests, self._copy)
        found = self._without_parts(list(file_sets_of(self._copy)))
        _count(self._done, len(found), sum(one.bytes for one in found))
        for group in groups_of(self._copy, found, now_ms, decisions_max):
            if all(self._is_unchanged(one) for one in group):
                try:
                    self._merge(group)
                except DamagedError as error:
                    self._done.problems.append(str(error).replace(str(self._copy), self._store.name))

    def _without_parts(self, found: Sequence[FileSet]) -> list[FileSet]:
        """Remove the parts of merged file sets that an interrupted call has left, and their files; return the others."""
        left = merged_parts(found)
        for one in left:
            self._remove(one)
        others = [one for one in found if one not in left]
        for one in others:
            if one.manifest.merged:
                self._store.delete(left_files(self._paths, one.file_sets, {entry.path for entry in one.manifest.files}))
        return others

    def _is_unchanged(self, one: FileSet) -> bool:
        """Whether `forget` or an upload has not changed it since it was read."""
        text = self._store.get(self._path(one))
        return text is not None and hashlib.sha256(text).hexdigest() == one.sha256

    def _merge(self, group: Sequence[FileSet]) -> None:
        """Replace file sets by one.

        Raises:
            DamagedError: a file differs from its manifest. Nothing was changed.
        """
        names = [entry.path for one in group for entry in one.manifest.files]
        copy_files(self._store, names, self._copy)
        manifest = write_merged(self._copy, group, _renamed(group))
        files = {entry.path: (self._copy / entry.path).read_bytes() for entry in manifest.files}
        text = manifest_text(manifest)
        put_file_set(self._store, self._path(group[0]), text, files)
        if self._store.get(self._path(group[0])) != text:  # an upload at the same time has replaced it, so the parts are needed
            return
        self._store.delete(entry.path for entry in group[0].manifest.files)
        for one in group[1:]:
            self._remove(one)
        for name in (*names, *files):
            (self._copy / name).unlink()
        self._done.after -= len(group) - 1
        self._done.bytes_after += sum(map(len, files.values())) - sum(one.bytes for one in group)

    def _remove(self, one: FileSet) -> None:
        self._store.delete([self._path(one), *(entry.path for entry in one.manifest.files)])

    def _path(self, one: FileSet) -> str:
        return str(one.path.relative_to(self._copy))


def _renamed(group: Sequence[FileSet]) -> Callable[[str], str]:
    """Return how files are named: by the number of their parts, unlike any version of a file that a proxy uploads or `forget` writes."""
    parts = sum(len(one.manifest.merged) or 1 for one in group)
    return lambda _name: merged_name(group[0].manifest.file_set, parts)
