"""Finds the changes of a store's content that other programs made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from proxy.quota_store.store import VALUES, Origin, StoreChange, StoreContent, SwitchChange, different_entities
from quota.admin.kraft import Change

V = TypeVar("V")


class AppliedChange(NamedTuple):
    """A change, and the value before it; None: there was none."""

    change: StoreChange
    old: float | str | None


class Observed:
    """Compares each new content with the previous one, apart from the changes of this process."""

    def __init__(self) -> None:
        self._content: StoreContent | None = None
        self._expected: frozenset[StoreChange] = frozenset()

    def expect(self, content: StoreContent, changes: Sequence[StoreChange]) -> list[AppliedChange]:
        """Return `changes` with the values that they replace in `content`; these changes are expected from now on."""
        self._expected = frozenset(changes)
        return [AppliedChange(change, _value(content, change)) for change in changes]

    def stop_expecting(self) -> None:
        """Stop expecting changes, because they were made or failed."""
        self._expected = frozenset()

    def arrived(self, content: StoreContent, origin: Origin) -> Unexpected | None:
        """Store a new content; return the unexpected differences, which can be computed later; None: it is the first content."""
        before, self._content = self._content, content
        if before is None or origin == "start":
            return None
        return Unexpected(before, content, self._expected)


class Unexpected(NamedTuple):
    """The contents to compare."""

    before: StoreContent
    after: StoreContent
    expected: frozenset[StoreChange]

    @property
    def size(self) -> int:
        """Number of entities to compare."""
        return max(len(self.before.quotas), len(self.after.quotas))

    def changes(self) -> list[AppliedChange]:
        """Return the changes of other programs; no I/O."""
        return [made for made in difference(self.before, self.after) if made.change not in self.expected]


def difference(before: StoreContent, after: StoreContent) -> Iterator[AppliedChange]:
    """Yield the changes from `before` to `after`."""
    if before.quotas is not after.quotas:
        for entity in different_entities(before.quotas, after.quotas):
            for key, was, now in _pairs(before.quotas.get(entity, {}), after.quotas.get(entity, {})):
                yield AppliedChange(Change(entity, key, now), was)
    for name in VALUES:
        if before.table(name) is not after.table(name):
            for target, old_mode, mode in _pairs(before.table(name), after.table(name)):
                yield AppliedChange(SwitchChange(target, mode, name), old_mode)


def _pairs(old: Mapping[str, V], new: Mapping[str, V]) -> Iterator[tuple[str, V | None, V | None]]:
    for key in [*new, *(key for key in old if key not in new)]:
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _value(content: StoreContent, change: StoreChange) -> float | str | None:
    if isinstance(change, SwitchChange):
        return content.table(change.table).get(change.target)
    return content.quotas.get(change.entity, {}).get(change.key)
