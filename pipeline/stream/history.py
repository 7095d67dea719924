"""The file sets that a stream has landed, in memory: a batch looks up what it needs, and reads only what is new.

There may be hundreds of thousands of them, so that a manifest stays without its files and totals. The manifests that were used last are
whole, and another one is read again when its files are judged.

A manifest that was written anew since it landed has another length, and is read again: a user was forgotten, or file sets were merged.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metering_format.manifest import Manifest, manifest_text
from pipeline.completeness import Completeness, completeness_of
from pipeline.errors import IncompleteError
from pipeline.manifest import FoundManifest, RunKey, brief, in_order, same_name
from pipeline.stream.listing import Listed
from pipeline.validation.warm_up import Work, warm_up_span_ms, work_of

Position = tuple[int, int]
"""First sequence number and part of a file set, its place in the run."""
WHOLE_MAX: Final = 1_024
"""Number of whole manifests in memory, of a few KiB each."""


class _Text(NamedTuple):
    """The file of a manifest: path, length in bytes, and a hash of its content."""

    path: str
    length: int
    digest: bytes


@dataclass(slots=True)
class _Run:
    """The file sets of a run, in decision order.

    Attributes:
        manifests: without their files and totals.
        ahead: those that have not landed, and that only follow-ups were judged with.
        texts: the file of each manifest.
        names: of all file sets, also of merged ones.
        fresh: those that have landed since the last call of `new_losses`.
        told: the losses that `new_losses` has returned.
    """

    manifests: list[Manifest] = field(default_factory=list)
    ahead: set[Position] = field(default_factory=set)
    texts: dict[Position, _Text] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    span_ms: int = 0
    fresh: set[Position] = field(default_factory=set)
    told: set[str] = field(default_factory=set)

    def put(self, manifest: Manifest, text: _Text, *, is_ahead: bool = False) -> bool:
        """Add a file set, or replace it; return whether it is new."""
        position, manifest = _position(manifest), brief(manifest, self.manifests[0] if self.manifests else None)
        at = bisect_left(self.manifests, position, key=_position)
        is_there = at < len(self.manifests) and _position(self.manifests[at]) == position
        is_new = not is_there or position in self.ahead
        if is_there:
            self.manifests[at] = manifest
        else:
            self.manifests.insert(at, manifest)
        if not is_ahead:
            self.ahead.discard(position)
            self.fresh.add(position)
        elif not is_there:
            self.ahead.add(position)
        self.texts[position] = text
        self.names |= {manifest.file_set, manifest.last_file_set}
        if manifest.merged:
            self._leave_out(manifest)
        self.span_ms = max(self.span_ms, warm_up_span_ms(manifest))
        return is_new

    def _leave_out(self, merged: Manifest) -> None:
        """Leave out the file sets that a merged one contains. They follow it."""
        parts = merged.parts
        first = 1 + bisect_left(self.manifests, _position(merged), key=_position)
        last = first + len(parts)
        self.manifests[first:last] = [one for one in self.manifests[first:last] if one.file_set not in parts]

    def landed(self) -> list[Manifest]:
        return [one for one in self.manifests if _position(one) not in self.ahead] if self.ahead else self.manifests

    def new_losses(self, key: RunKey, removed_seq: int | None) -> list[str]:
        """Return the losses that are known now and were not before. Only what has landed since the last call is compared."""
        lines: dict[str, None] = {}
        for position in sorted(self.fresh):
            at = bisect_left(self.manifests, position, key=_position)
            if at < len(self.manifests) and _position(self.manifests[at]) == position:  # otherwise a merged one contains it
                for number in (at, self._beside(at, 1)):
                    lines |= dict.fromkeys(self._losses_at(number, key, removed_seq))
        self.fresh.clear()
        found = [line for line in lines if line not in self.told]
        self.told.update(found)
        return found

    def _losses_at(self, at: int | None, key: RunKey, removed_seq: int | None) -> list[str]:
        """Return what is missing before a file set and in it."""
        if at is None:
            return []
        own, number = self.manifests[at], self._beside(at, -1)
        if number is None:
            return completeness_of({key: [own]}, {} if removed_seq is None else {key: removed_seq}).incomplete
        before = self.manifests[number]
        nothing = {key: before.first_seq - 1}  # what is missing before that one, and in it, are losses of its own
        known = completeness_of({key: [before]}, nothing).incomplete
        return completeness_of({key: [before, own]}, nothing).incomplete[len(known) :]

    def _beside(self, at: int, step: int) -> int | None:
        """Return the place of the next landed file set after (1) or before (-1) one; None: there is none."""
        at += step
        while 0 <= at < len(self.manifests):
            if _position(self.manifests[at]) not in self.ahead:
                return at
            at += step
        return None


class History:
    """What has landed.

    Args:
        there: the metering directory now.
        landed: each batch that counts, and its file sets by the path of the manifest; None: the output does not have the manifest.

    Raises:
        BadInputError: a manifest cannot be read.
    """

    def __init__(self, there: Listed, landed: Iterable[tuple[int, Mapping[str, Manifest | None]]]) -> None:
        self._landed: set[str] = set()
        self._runs: dict[RunKey, _Run] = {}
        self._whole: OrderedDict[str, Manifest] = OrderedDict()
        for _, file_sets in landed:
            for path, manifest in file_sets.items():
                self._landed.add(path)
                if manifest is not None:
                    self._put(path, manifest)
                    continue
                for one in there.read({path} & there.sizes.keys()):  # retention may have removed it
                    self._put(path, one.manifest, one.bytes)

    def __contains__(self, path: str) -> bool:
        """Whether the file set of a manifest has landed."""
        return path in self._landed

    def __len__(self) -> int:
        """The number of manifests."""
        return len(self._landed)

    def add(self, found: Iterable[FoundManifest]) -> list[Manifest]:
        """Add the file sets of a batch; return those that are not copies of another one.

        Raises:
            BadInputError: there is a different manifest of the same name.
        """
        new = []
        for one in found:
            run, manifest = self._run_of(one.manifest), one.manifest
            self._landed.add(one.path)
            known = run.texts.get(_position(manifest))
            if known is not None and known.digest != _digest(manifest_text(manifest)):
                raise same_name(manifest)
            if landed := next((name for name in manifest.parts if name in run.names), None):
                raise IncompleteError(f"{one.path}: was merged with {landed}, which has landed; use a new --checkpoint and --out")
            if self._put(one.path, manifest, one.bytes):
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
                self._put(one.path, one.manifest, one.bytes, is_ahead=True)
                if one.manifest.last_ts_ms <= own.first_ts_ms - run.span_ms:
                    break
                name = one.manifest.previous

    def works(self, fresh: Iterable[Manifest], there: Listed) -> list[Work]:
        """Return each file set after the earlier ones of its run that can affect it, as far as they are there, with whole manifests."""
        found = []
        for manifest in fresh:
            run = self._run_of(manifest)
            at = bisect_left(run.manifests, _position(manifest), key=_position)
            *before, _ = work_of(run.manifests, at, run.span_ms)
            own = self._whole_of(run, manifest, there) or manifest
            found.append((*self.whole(before, there), own))
        return found

    def whole(self, manifests: Iterable[Manifest], there: Listed) -> list[Manifest]:
        """Return the whole manifests of file sets, those that are there, as they are now."""
        found = (self._whole_of(self._run_of(one), one, there) for one in manifests)
        return [one for one in found if one is not None]

    def present(self, there: Listed) -> list[Manifest]:
        """Return the landed file sets whose manifests are there, as they are now, each run in decision order, without files and totals."""
        current = (self._current(run, one, there) for run in self._runs.values() for one in list(run.landed()))
        return in_order(one for one in current if one is not None)

    def new_losses(self, keys: Iterable[RunKey], removed: Mapping[RunKey, int]) -> list[str]:
        """Return the losses of some runs that are known now and were not at the last call, one line each."""
        return [line for key in keys for line in self._runs[key].new_losses(key, removed.get(key))]

    def completeness(self, there: Listed, removed: Mapping[RunKey, int]) -> Completeness:
        """Return the completeness of all landed file sets whose manifests are there."""
        runs: dict[RunKey, list[Manifest]] = {}
        for manifest in self.present(there):
            runs.setdefault((manifest.proxy_id, manifest.run_id), []).append(manifest)
        return completeness_of(runs, removed)

    def _run_of(self, manifest: Manifest) -> _Run:
        return self._runs.setdefault((manifest.proxy_id, manifest.run_id), _Run())

    def _put(self, path: str, manifest: Manifest, length: int | None = None, *, is_ahead: bool = False) -> bool:
        """Add a file set, or replace it; return whether it is new. Without a length, it is that of the text that a proxy writes."""
        data = manifest_text(manifest)
        text = _Text(path, len(data) if length is None else length, _digest(data))
        self._keep_whole(path, manifest)
        return self._run_of(manifest).put(manifest, text, is_ahead=is_ahead)

    def _keep_whole(self, path: str, manifest: Manifest) -> None:
        self._whole[path] = manifest
        self._whole.move_to_end(path)
        if len(self._whole) > WHOLE_MAX:
            self._whole.popitem(last=False)

    def _whole_of(self, run: _Run, manifest: Manifest, there: Listed) -> Manifest | None:
        """Return the whole manifest of a file set as it is in the directory now; None: it is not there."""
        if self._current(run, manifest, there) is None:
            return None
        path = run.texts[_position(manifest)].path
        known = self._whole.get(path)
        if known is None:
            [found] = there.read([path])
            known = found.manifest
        self._keep_whole(path, known)
        return known

    def _current(self, run: _Run, manifest: Manifest, there: Listed) -> Manifest | None:
        """Return a manifest as it is in the directory now; None: it is not there."""
        text = run.texts[_position(manifest)]
        if text.path not in there.sizes:
            return None
        if text.length == there.sizes[text.path]:
            return manifest
        [found] = there.read([text.path])
        now = found.manifest
        missing = next((name for name in (now.file_set, *now.parts) if name not in run.names), None)
        if missing is not None:
            raise IncompleteError(
                f"{there.directory / text.path}: was merged with {missing}, which has not landed; use a new --checkpoint and --out"
            )
        self._put(text.path, now, found.bytes)
        return now


def _position(manifest: Manifest) -> Position:
    return manifest.first_seq, manifest.part


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
