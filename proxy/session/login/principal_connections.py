"""Counts the connections of each authenticated principal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from quota.entity import KafkaPrincipal


class PrincipalsElsewhere(Protocol):
    """The other members of the fleet, which share the limits on connections."""

    def principal_changed(self, principal: KafkaPrincipal) -> None:
        """The number of connections of a principal has changed here."""

    def open_of_principal(self, principal: KafkaPrincipal) -> int:
        """Return how many connections a principal has at the other members."""


class PrincipalConnections:
    """Counts of the whole process; a principal without connections is removed.

    Attributes:
        max_connections: limit per principal; None: no limit.
        overrides: limits of single principals, by `User:alice`.
        on_change: called with each principal whose count changes, and with the change; None: nobody needs to know.
        elsewhere: other members that share the limits; None: there are none.
    """

    __slots__ = ("_counts", "elsewhere", "max_connections", "on_change", "overrides")

    def __init__(self) -> None:
        self._counts: dict[KafkaPrincipal, int] = {}
        self.max_connections: int | None = None
        self.overrides: Mapping[str, int] = {}
        self.on_change: Callable[[KafkaPrincipal, int], None] | None = None
        self.elsewhere: PrincipalsElsewhere | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def enter(self, principal: KafkaPrincipal, *, only_observes: bool) -> bool:
        """Count a connection of `principal`; False: it has reached its limit, and the connection is not counted."""
        limit = self.limit_of(principal)
        if limit is not None and not only_observes and self._known_of(principal) >= limit:
            return False
        self.change(principal, 1)
        return True

    def limit_of(self, principal: KafkaPrincipal) -> int | None:
        """Return the limit of a principal; None: it has none."""
        return self.overrides.get(str(principal), self.max_connections) if self.overrides else self.max_connections

    def _known_of(self, principal: KafkaPrincipal) -> int:
        """Return how many connections a principal has, here and at the members that share the limits."""
        count = self._counts.get(principal, 0)
        return count if self.elsewhere is None else count + self.elsewhere.open_of_principal(principal)

    def leave(self, principal: KafkaPrincipal) -> None:
        """Remove a connection."""
        assert principal in self._counts
        self.change(principal, -1)

    def change(self, principal: KafkaPrincipal, change: int) -> None:
        """Count `change` connections of `principal`, of whatever process."""
        count = self._counts.get(principal, 0) + change
        if count:
            self._counts[principal] = count
        else:
            self._counts.pop(principal, None)
        if self.on_change is not None:
            self.on_change(principal, change)
        if self.elsewhere is not None:
            self.elsewhere.principal_changed(principal)

    def counts(self) -> Mapping[KafkaPrincipal, int]:
        """Return the number of connections of each principal that has some."""
        return self._counts
