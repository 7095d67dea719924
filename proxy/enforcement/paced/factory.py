"""Creates the groups of a process with paced enforcement."""

from __future__ import annotations

from functools import partial

from proxy.enforcement.groups.child_groups import enforced_group
from proxy.enforcement.groups.group_factory import MakeGroup
from proxy.enforcement.paced.group import PacedGroup
from quota.entity import ClientQuotaType
from quota.paced_schedule import MS_NS


class PacedGroups:
    """Creates groups with a schedule for produced and fetched bytes, and groups with a window for request time.

    Args:
        burst_ms: how far a schedule may be ahead of the clock when a request passes.
    """

    __slots__ = ("_burst_ns",)

    def __init__(self, burst_ms: int) -> None:
        self._burst_ns = burst_ms * MS_NS

    def of_scope(self, scope_key: str) -> PacedGroups:
        """Return the factory of a scope."""
        return self

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""
        return enforced_group if quota_type is ClientQuotaType.REQUEST else partial(PacedGroup, burst_ns=self._burst_ns)

    def rescope(self, scope_key: str) -> None:
        """Do nothing, since no other process uses the name."""
