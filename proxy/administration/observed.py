"""Which changes of a store's content are somebody else's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from proxy.quota_store.store import Origin, StoreChange, StoreContent, SwitchChange
from quota.admin.kraft import Change

V = TypeVar("V")


class Made(NamedTuple):
    """A change, and what was there before; None: nothing."""

    change: StoreChange
    old: float | str | None


class Observed:
    """Compares each new content with the one before; what this process is about to change itself is no news."""

    def __init__(self) -> None:
        self._content: StoreContent | None = None
        self._expected: frozenset[StoreChange] = frozenset()

    def expect(self, content: StoreContent, changes: Sequence[StoreChange]) -> list[Made]:
        """Return `changes` with what they replace in `content`; from now on they are expected, and nothing else."""
        self._expected = frozenset(changes)
        return [Made(change, _value(content, change)) for change in changes]

    def expected_no_more(self) -> None:
        """What was to change has changed, or has not."""
        self._expected = frozenset()

    def arrived(self, content: StoreContent, origin: Origin) -> list[Made]:
        """Return what is different now, and was not expected."""
        before, self._content = self._content, content
        if before is None or origin == "start":
            return []
        return [made for made in difference(before, content) if made.change not in self._expected]


def difference(before: StoreContent, after: StoreContent) -> Iterator[Made]:
    """Yield what makes `after` of `before`."""
    for entity in [*after.quotas, *(entity for entity in before.quotas if entity not in after.quotas)]:
        old, new = before.quotas.get(entity, {}), after.quotas.get(entity, {})
        if old is not new:
            for key, was, now in _pairs(old, new):
                yield Made(Change(entity, key, now), was)
    if before.switches is not after.switches:
        for target, old_mode, mode in _pairs(before.switches, after.switches):
            yield Made(SwitchChange(target, mode), old_mode)


def _pairs(old: Mapping[str, V], new: Mapping[str, V]) -> Iterator[tuple[str, V | None, V | None]]:
    for key in [*new, *(key for key in old if key not in new)]:
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _value(content: StoreContent, change: StoreChange) -> float | str | None:
    if isinstance(change, SwitchChange):
        return content.switches.get(change.target)
    return content.quotas.get(change.entity, {}).get(change.key)
