"""Counts the connections of each authenticated principal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quota.entity import KafkaPrincipal


class PrincipalConnections:
    """Counts of the whole process; a principal without connections is removed.

    Attributes:
        max_connections: limit per principal; None: no limit.
        overrides: limits of single principals, by `User:alice`.
        on_change: called with each principal whose count changes, and with the change; None: nobody needs to know.
    """

    __slots__ = ("_counts", "max_connections", "on_change", "overrides")

    def __init__(self) -> None:
        self._counts: dict[KafkaPrincipal, int] = {}
        self.max_connections: int | None = None
        self.overrides: Mapping[str, int] = {}
        self.on_change: Callable[[KafkaPrincipal, int], None] | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def enter(self, principal: KafkaPrincipal, *, only_observes: bool) -> bool:
        """Count a connection of `principal`; False: it has reached its limit, and the connection is not counted."""
        count = self._counts.get(principal, 0)
        limit = self.overrides.get(str(principal), self.max_connections) if self.overrides else self.max_connections
        if limit is not None and count >= limit and not only_observes:
            return False
        self.change(principal, 1)
        return True

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

    def counts(self) -> Mapping[KafkaPrincipal, int]:
        """Return the number of connections of each principal that has some."""
        return self._counts
