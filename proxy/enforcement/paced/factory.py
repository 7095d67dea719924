"""Creates the groups of a process with paced enforcement."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.groups.group_factory import GroupFactory, MakeGroup, PlainGroups
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.time_group import PacedTimeGroup
from proxy.enforcement.pacing import Pacings
from quota.entity import UNLIMITED, ClientQuotaEntity, ClientQuotaType
from quota.groups.declared_groups import GROUP_TAG
from quota.paced_schedule import MS_NS


def _no_rule(_tags: Mapping[str, str]) -> ClientQuotaEntity | None:
    return None


class PacedMaker:
    """Creates the groups of one manager: with a schedule, or with a window.

    Attributes:
        rescales: groups whose bound has changed, until their schedules are rescaled.
        rule: returns the entity whose quota applies to the group of some tags; set by the manager.
    """

    __slots__ = ("_by_schedule", "_by_window", "_pacings", "rescales", "rule")

    def __init__(self, pacings: Pacings, by_window: MakeGroup, by_schedule: MakeGroup) -> None:
        self._pacings = pacings
        self._by_window, self._by_schedule = by_window, by_schedule
        self.rescales: list[PacedGroup] = []
        self.rule: Callable[[Mapping[str, str]], ClientQuotaEntity | None] = _no_rule

    @property
    def depends_on_quotas(self) -> bool:
        """Whether a change of quotas may change the pacing of a group."""
        return self._pacings.table.depends_on_quotas

    def is_paced(self, tags: Mapping[str, str]) -> bool:
        """Whether the group of these tags is paced."""
        needs_rule = self._pacings.table.depends_on_quotas
        return self._pacings.is_paced(tags, self.rule(tags) if needs_rule else None)

    def __call__(
        self, tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedGroup | None = None, **settings: Any
    ) -> EnforcedGroup:
        """Return a new group, as `enforced_group` does."""
        settings.pop("burst_ns", None)  # the settings may be those of a paced group
        if not self.is_paced(tags):
            return self._by_window(tags, bound, parent, **settings)
        assert parent is None or isinstance(parent, PacedGroup), "a declared group has the pacing of its parent"
        settings |= {"burst_ns": self._pacings.burst_ms * MS_NS, "rescales": self.rescales, **self._among_others(tags, parent)}
        return self._by_schedule(tags, bound, parent, **settings)

    def _among_others(self, tags: Mapping[str, str], parent: PacedGroup | None) -> dict[str, Any]:
        """Return the place of a declared group among the members of its parent."""
        name, pacings = tags.get(GROUP_TAG), self._pacings
        if name is None:
            return {}
        above = None
        if parent is not None and parent.declared is not None:
            above = parent.line.at(pacings.path_below(name, parent.declared)[:-1], 0)
        return {
            "above": above,
            "weigh": functools.partial(pacings.weight_of, name),
            "between": functools.partial(pacings.path_below, above=name),
            "below": pacings.below,
        }


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
        return PacedTimeGroup if quota_type is ClientQuotaType.REQUEST else PacedGroup


ALONE: Final = AloneGroups()


class PacedGroups:
    """Creates groups with a schedule where they are paced.

    Args:
        burst_ms: how far a schedule may be ahead of the clock when a request passes.
        named: whether each declared group with a pacing of its own is paced.
        paces_others: whether all other groups are paced.
        factories: create the groups of both kinds.

    Attributes:
        pacings: which groups are paced now; the first three arguments are its own.
    """

    __slots__ = ("_factories", "pacings")

    def __init__(
        self,
        burst_ms: int,
        named: Mapping[str, bool] | None = None,
        *,
        paces_others: bool = True,
        factories: PaceableFactories = ALONE,
    ) -> None:
        self.pacings = Pacings(burst_ms, named, paces_others=paces_others)
        self._factories = factories

    def of_scope(self, scope_key: str) -> PacedScope:
        """Return the factory of a scope."""
        return PacedScope(self.pacings, self._factories.of_scope(scope_key))


class PacedScope:
    """Creates the groups of one scope."""

    __slots__ = ("_factory", "_pacings")

    def __init__(self, pacings: Pacings, factory: PaceableFactory) -> None:
        self._pacings = pacings
        self._factory = factory

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""
        by_window = self._factory.maker(quota_type)
        return PacedMaker(self._pacings, by_window, self._factory.paced_maker(quota_type))

    def rescope(self, scope_key: str) -> None:
        """Use another name of the scope for the groups from their next records on."""
        self._factory.rescope(scope_key)
