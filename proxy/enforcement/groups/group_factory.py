"""Who makes the groups of a scope: plain ones, or ones whose usage other processes count too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.enforcement.groups.child_groups import enforced_group
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from quota.entity import ClientQuotaType

MakeGroup = Callable[..., EnforcedGroup]
"""As `enforced_group`."""


class GroupFactory(Protocol):
    """Makes the groups of one scope."""

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return what makes the groups of one quota type."""

    def rescope(self, scope_key: str) -> None:
        """Let groups count under another name of the scope from their next records on."""


class GroupFactories(Protocol):
    """Makes such factories."""

    def of_scope(self, scope_key: str) -> GroupFactory:
        """Return the factory of a scope, by a name that is the same in all processes."""


class PlainGroups:
    """Groups of a process that counts alone; one for all scopes."""

    __slots__ = ()

    def of_scope(self, scope_key: str) -> GroupFactory:
        """Return the factory of a scope."""
        return self

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return what makes the groups of one quota type."""
        return enforced_group

    def rescope(self, scope_key: str) -> None:
        """No other process knows the name."""


PLAIN: Final = PlainGroups()
