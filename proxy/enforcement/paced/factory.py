"""Creates the groups of a process with paced enforcement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.enforcement.groups.child_groups import enforced_group
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.groups.group_factory import MakeGroup
from proxy.enforcement.paced.group import PacedGroup
from quota.entity import UNLIMITED, ClientQuotaType
from quota.groups.declared_groups import GROUP_TAG
from quota.paced_schedule import MS_NS


class PacedGroups:
    """Creates groups with a schedule for produced and fetched bytes, and groups with a window for request time.

    Args:
        burst_ms: how far a schedule may be ahead of the clock when a request passes.
        named: whether each declared group with a pacing of its own is paced.
        paces_others: whether all other groups are paced.
    """

    __slots__ = ("_burst_ns", "_named", "_paces_others")

    def __init__(self, burst_ms: int, named: Mapping[str, bool] | None = None, *, paces_others: bool = True) -> None:
        self._burst_ns = burst_ms * MS_NS
        self._named = dict(named or {})
        self._paces_others = paces_others

    def of_scope(self, scope_key: str) -> PacedGroups:
        """Return the factory of a scope."""
        return self

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""
        return enforced_group if quota_type is ClientQuotaType.REQUEST else self._make

    def rescope(self, scope_key: str) -> None:
        """Do nothing, since no other process uses the name."""

    def _make(
        self, tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedGroup | None = None, **settings: Any
    ) -> EnforcedGroup:
        if not self._named.get(tags.get(GROUP_TAG, ""), self._paces_others):
            return enforced_group(tags, bound, parent, **settings)
        assert parent is None or isinstance(parent, PacedGroup), "the configuration gives a group the pacing of its parent"
        return PacedGroup(tags, bound, parent, **{**settings, "burst_ns": self._burst_ns})
