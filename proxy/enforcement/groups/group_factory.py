"""Creates the groups of a scope: plain ones, or ones that share usage with other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.enforcement.groups.child_groups import enforced_group
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from quota.entity import ClientQuotaType

MakeGroup = Callable[..., EnforcedGroup]
"""Creates a group, as `enforced_group` does."""


class GroupFactory(Protocol):
    """Creates the groups of one scope."""

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""

    def rescope(self, scope_key: str) -> None:
        """Use another name of the scope for the groups from their next records on."""


class GroupFactories(Protocol):
    """Creates group factories."""

    def of_scope(self, scope_key: str) -> GroupFactory:
        """Return the factory of a scope, whose name is the same in all processes."""


class PlainGroups:
    """Creates groups that do not share usage; one factory for all scopes."""

    __slots__ = ()

    def of_scope(self, scope_key: str) -> GroupFactory:
        """Return the factory of a scope."""
        return self

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""
        return enforced_group

    def rescope(self, scope_key: str) -> None:
        """Do nothing, since no other process uses the name."""


PLAIN: Final = PlainGroups()
