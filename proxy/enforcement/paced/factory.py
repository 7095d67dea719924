"""Creates the groups of a process with paced enforcement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.groups.group_factory import GroupFactory, MakeGroup, PlainGroups
from proxy.enforcement.paced.group import PacedGroup
from quota.entity import UNLIMITED, ClientQuotaType
from quota.groups.declared_groups import GROUP_TAG
from quota.paced_schedule import MS_NS


class PaceableFactory(GroupFactory, Protocol):
    """Creates the groups of one scope, with a window or with a schedule."""

    def paced_maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type with a schedule."""


class PaceableFactories(Protocol):
    """Creates such factories."""

    def of_scope(self, scope_key: str) -> PaceableFactory:
        """Return the factory of a scope, whose name is the same in all processes."""


class AloneGroups(PlainGroups):
    """Creates groups that do not share usage."""

    __slots__ = ()

    def of_scope(self, scope_key: str) -> AloneGroups:
        """Return the factory of a scope."""
        return self

    def paced_maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type with a schedule."""
        return PacedGroup


ALONE: Final = AloneGroups()


class PacedGroups:
    """Creates groups with a schedule for produced and fetched bytes, and groups with a window for request time.

    Args:
        burst_ms: how far a schedule may be ahead of the clock when a request passes.
        named: whether each declared group with a pacing of its own is paced.
        paces_others: whether all other groups are paced.
        factories: create the groups of both kinds.
    """

    __slots__ = ("_burst_ns", "_factories", "_named", "_paces_others")

    def __init__(
        self,
        burst_ms: int,
        named: Mapping[str, bool] | None = None,
        *,
        paces_others: bool = True,
        factories: PaceableFactories = ALONE,
    ) -> None:
        self._burst_ns = burst_ms * MS_NS
        self._named = dict(named or {})
        self._paces_others = paces_others
        self._factories = factories

    def of_scope(self, scope_key: str) -> PacedScope:
        """Return the factory of a scope."""
        return PacedScope(self, self._factories.of_scope(scope_key))

    def settings_of(self, tags: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the settings of the schedule of a group; None: it has a window."""
        return {"burst_ns": self._burst_ns} if self._named.get(tags.get(GROUP_TAG, ""), self._paces_others) else None


class PacedScope:
    """Creates the groups of one scope."""

    __slots__ = ("_factory", "_groups")

    def __init__(self, groups: PacedGroups, factory: PaceableFactory) -> None:
        self._groups = groups
        self._factory = factory

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""
        by_window = self._factory.maker(quota_type)
        if quota_type is ClientQuotaType.REQUEST:
            return by_window
        by_schedule = self._factory.paced_maker(quota_type)

        def make(tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedGroup | None = None, **settings: Any) -> EnforcedGroup:
            paced = self._groups.settings_of(tags)
            if paced is None:
                return by_window(tags, bound, parent, **settings)
            assert parent is None or isinstance(parent, PacedGroup), "the configuration gives a group the pacing of its parent"
            return by_schedule(tags, bound, parent, **{**settings, **paced})

        return make

    def rescope(self, scope_key: str) -> None:
        """Use another name of the scope for the groups from their next records on."""
        self._factory.rescope(scope_key)
