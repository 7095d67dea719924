"""The file sets that a stream has landed, in memory: a batch looks up what it needs, and reads only what is new.

A manifest that was written anew since it landed has another length, and is read again: a user was forgotten, or file sets were merged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from metering_format.manifest import Manifest, manifest_text
from pipeline.completeness import Completeness, completeness_of
from pipeline.errors import IncompleteError
from pipeline.manifest import FoundManifest, RunKey, in_order, without_parts
from pipeline.stream.listing import Listed
from pipeline.validation.warm_up import Work, warm_up_span_ms, work_of

Position = tuple[int, int]
"""First sequence number and part of a file set, its place in the run."""


@dataclass(slots=True)
class _Run:
    """The file sets of a run, in decision order.

    Attributes:
        ahead: those that have not landed, and that only follow-ups were judged with.
        paths: the path of each manifest.
        lengths: length of the text of each manifest in bytes.
        names: of all file sets, also of merged ones.
        compared: number of landed file sets, the first of the run, that `between` is about.
        between: the losses that are known from the second one of these on.
    """

    manifests: list[Manifest] = field(default_factory=list)
    ahead: set[Position] = field(default_factory=set)
    paths: dict[Position, str] = field(default_factory=dict)
    lengths: dict[Position, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    span_ms: int = 0
    compared: int = 1
    between: list[str] = field(default_factory=list)

    def put(self, path: str, manifest: Manifest, length: int, *, is_ahead: bool = False) -> bool:
        """Add a file set, or replace it; return whether it is new."""
        position = _position(manifest)
        at = bisect_left(self.manifests, position, key=_position)
        is_there = at < len(self.manifests) and _position(self.manifests[at]) == position
        is_new = not is_there or position in self.ahead
        if at < self.compared or self.ahead:
            self.compared, self.between = 1, []
        if is_there:
            self.manifests[at] = manifest
        else:
            self.manifests.insert(at, manifest)
        if not is_ahead:
            self.ahead.discard(position)
        elif not is_there:
            self.ahead.add(position)
        self.paths[position], self.lengths[position] = path, length
        self.names |= {manifest.file_set, manifest.last_file_set}
        if manifest.merged:
            self.manifests = without_parts(self.manifests)
            self.compared, self.between = 1, []
        self.span_ms = max(self.span_ms, warm_up_span_ms(manifest))
        return is_new

    def landed(self) -> list[Manifest]:
        return [one for one in self.manifests if _position(one) not in self.ahead] if self.ahead else self.manifests

    def losses(self, key: RunKey, removed_seq: int | None) -> list[str]:
        """Return the known losses. Only file sets that have landed since the last call are compared."""
        landed = self.landed()
        if len(landed) > self.compared:
            last, *new = landed[self.compared - 1 :]
            before = {key: last.first_seq - 1}  # nothing is missing before the last one, and its own losses are known
            known = completeness_of({key: [last]}, before).incomplete
            self.between += completeness_of({key: [last, *new]}, before).incomplete[len(known) :]
            self.compared = len(landed)
        first = completeness_of({key: landed[:1]}, {} if removed_seq is None else {key: removed_seq})
        return first.incomplete + self.between


class History:
    """What has landed.

    Args:
        there: the metering directory now.
        landed: for each batch that counts, its file sets by the path of the manifest; None: the output does not have the manifest.

    Raises:
        BadInputError: a manifest cannot be read.
    """

    def __init__(self, there: Listed, landed: Mapping[int, Mapping[str, Manifest | None]]) -> None:
        self._batch_of: dict[str, int] = {}
        self._runs: dict[RunKey, _Run] = {}
        for batch_id, file_sets in sorted(landed.items()):
            for path, manifest in file_sets.items():
                self._batch_of[path] = batch_id
                if manifest is not None:
                    self._run_of(manifest).put(path, manifest, len(manifest_text(manifest)))
                    continue
                for one in there.read({path} & there.sizes.keys()):  # retention may have removed it
                    self._run_of(one.manifest).put(path, one.manifest, one.bytes)

    def __contains__(self, path: str) -> bool:
        """Whether the file set of a manifest has landed."""
        return path in self._batch_of

    def __len__(self) -> int:
        """The number of manifests."""
        return len(self._batch_of)

    def add(self, batch_id: int, found: Iterable[FoundManifest]) -> list[Manifest]:
        """Add the file sets of a batch; return those that are not copies of another one.

        Raises:
            BadInputError: there is a different manifest of the same name.
        """
        new = []
        for one in found:
            run, manifest = self._run_of(one.manifest), one.manifest
            self._batch_of[one.path] = batch_id
            known = _of_position(run.manifests, _position(manifest))
            if known is not None:
                in_order([known, manifest])
            if landed := next((name for name in manifest.parts if name in run.names), None):
                raise IncompleteError(f"{one.path}: was merged with {landed}, which has landed; use a new --checkpoint and --out")
            if run.put(one.path, manifest, one.bytes):
                new.append(manifest)
        return new

    def look_ahead(self, fresh: Iterable[Manifest], there: Listed, waiting: Mapping[str, str]) -> None:
        """Read file sets before those of a batch that are there and land later, since they can affect it.

        Args:
            fresh: the file sets of the batch.
            there: the metering directory.
            waiting: the path of each manifest that has not landed, by the name of the file set.
        """
        for manifest in fresh:
            run, own, name = self._run_of(manifest), manifest, manifest.previous
            while name is not None and name not in run.names and name in waiting:
                [one] = there.read([waiting[name]])
                if one.manifest.run_id != own.run_id or one.manifest.proxy_id != own.proxy_id:
                    break
                run.put(one.path, one.manifest, one.bytes, is_ahead=True)
                if one.manifest.last_ts_ms <= own.first_ts_ms - run.span_ms:
                    break
                name = one.manifest.previous

    def works(self, fresh: Iterable[Manifest], there: Listed) -> list[Work]:
        """Return each file set after the earlier ones of its run that can affect it, as far as they are there."""
        found = []
        for manifest in fresh:
            run = self._run_of(manifest)
            at = bisect_left(run.manifests, _position(manifest), key=_position)
            *before, _ = work_of(run.manifests, at, run.span_ms)
            present = (self._current(run, one, there) for one in before)
            found.append((*(one for one in present if one is not None), manifest))
        return found

    def present(self, there: Listed) -> list[Manifest]:
        """Return the landed file sets whose manifests are there, as they are now, each run in decision order."""
        current = (self._current(run, one, there) for run in self._runs.values() for one in list(run.landed()))
        return in_order(one for one in current if one is not None)

    def losses(self, keys: Iterable[RunKey], removed: Mapping[RunKey, int]) -> dict[RunKey, list[str]]:
        """Return the known losses of some runs, one line each."""
        return {key: self._runs[key].losses(key, removed.get(key)) for key in keys}

    def completeness(self, there: Listed, removed: Mapping[RunKey, int]) -> Completeness:
        """Return the completeness of all landed file sets whose manifests are there."""
        runs: dict[RunKey, list[Manifest]] = {}
        for manifest in self.present(there):
            runs.setdefault((manifest.proxy_id, manifest.run_id), []).append(manifest)
        return completeness_of(runs, removed)

    def _run_of(self, manifest: Manifest) -> _Run:
        return self._runs.setdefault((manifest.proxy_id, manifest.run_id), _Run())

    @staticmethod
    def _current(run: _Run, manifest: Manifest, there: Listed) -> Manifest | None:
        """Return a manifest as it is in the directory now; None: it is not there."""
        path = run.paths[_position(manifest)]
        if path not in there.sizes:
            return None
        if run.lengths[_position(manifest)] == there.sizes[path]:
            return manifest
        [found] = there.read([path])
        now = found.manifest
        missing = next((name for name in (now.file_set, *now.parts) if name not in run.names), None)
        if missing is not None:
            text = f"{there.directory / path}: was merged with {missing}, which has not landed; use a new --checkpoint and --out"
            raise IncompleteError(text)
        run.put(path, now, found.bytes)
        return now


def _position(manifest: Manifest) -> Position:
    return manifest.first_seq, manifest.part


def _of_position(manifests: Sequence[Manifest], position: Position) -> Manifest | None:
    at = bisect_left(manifests, position, key=_position)
    return manifests[at] if at < len(manifests) and _position(manifests[at]) == position else None
