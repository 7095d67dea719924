"""Counts the connections of each authenticated principal."""

from __future__ import annotations

from collections.abc import Mapping

from quota.entity import KafkaPrincipal


class PrincipalConnections:
    """Counts of the whole process; a principal without connections is removed.

    Attributes:
        max_connections: limit per principal; None: no limit.
        overrides: limits of single principals, by `User:alice`.
    """

    __slots__ = ("_counts", "max_connections", "overrides")

    def __init__(self) -> None:
        self._counts: dict[KafkaPrincipal, int] = {}
        self.max_connections: int | None = None
        self.overrides: Mapping[str, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def enter(self, principal: KafkaPrincipal, *, only_observes: bool) -> bool:
        """Count a connection of `principal`; False: it has reached its limit, and the connection is not counted."""
        count = self._counts.get(principal, 0)
        limit = self.overrides.get(str(principal), self.max_connections) if self.overrides else self.max_connections
        if limit is not None and count >= limit and not only_observes:
            return False
        self._counts[principal] = count + 1
        return True

    def leave(self, principal: KafkaPrincipal) -> None:
        """Remove a connection."""
        count = self._counts[principal] - 1
        if count:
            self._counts[principal] = count
        else:
            del self._counts[principal]
