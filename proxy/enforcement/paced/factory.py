"""Creates the groups of a process with paced enforcement."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from proxy.enforcement.groups.child_groups import enforced_group
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.groups.group_factory import MakeGroup
from proxy.enforcement.paced.group import PacedGroup
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

    __slots__ = ("_pacings", "rescales", "rule")

    def __init__(self, pacings: Pacings) -> None:
        self._pacings = pacings
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
            return enforced_group(tags, bound, parent, **settings)
        assert parent is None or isinstance(parent, PacedGroup), "a declared group has the pacing of its parent"
        settings |= {"burst_ns": self._pacings.burst_ms * MS_NS, "rescales": self.rescales, **self._among_others(tags, parent)}
        return PacedGroup(tags, bound, parent, **settings)

    def _among_others(self, tags: Mapping[str, str], parent: PacedGroup | None) -> dict[str, Any]:
        """Return the place of a declared group among the members of its parent."""
        name, pacings = tags.get(GROUP_TAG), self._pacings
        if name is None:
            return {}
        above = None
        if parent is not None and parent.declared is not None:
            above = parent.line.member(pacings.path_below(name, parent.declared)[:-1], 0)
        return {
            "above": above,
            "weigh": functools.partial(pacings.weight_of, name),
            "between": functools.partial(pacings.path_below, above=name),
        }


class PacedGroups:
    """Creates groups with a schedule for produced and fetched bytes where they are paced, and groups with a window for request time.

    Attributes:
        pacings: which groups are paced now. The arguments are its own.
    """

    __slots__ = ("pacings",)

    def __init__(self, burst_ms: int, named: Mapping[str, bool] | None = None, *, paces_others: bool = True) -> None:
        self.pacings = Pacings(burst_ms, named, paces_others=paces_others)

    def of_scope(self, scope_key: str) -> PacedGroups:
        """Return the factory of a scope."""
        return self

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""
        return enforced_group if quota_type is ClientQuotaType.REQUEST else PacedMaker(self.pacings)

    def rescope(self, scope_key: str) -> None:
        """Do nothing, since no other process uses the name."""
