"""Counts the connections of each principal that logged in."""

from __future__ import annotations

from collections.abc import Mapping

from quota.entity import KafkaPrincipal


class PrincipalConnections:
    """Counts of the whole process; a principal is in the table as long as one of its connections lives.

    Attributes:
        max_connections: how many a principal may have; None: as many as there is room for.
        overrides: the same for single principals, by `User:alice`.
    """

    __slots__ = ("_counts", "max_connections", "overrides")

    def __init__(self) -> None:
        self._counts: dict[KafkaPrincipal, int] = {}
        self.max_connections: int | None = None
        self.overrides: Mapping[str, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def enter(self, principal: KafkaPrincipal, *, only_observes: bool) -> bool:
        """Count a connection of `principal`; False when it has as many as it may, and then it does not count."""
        count = self._counts.get(principal, 0)
        limit = self.overrides.get(str(principal), self.max_connections) if self.overrides else self.max_connections
        if limit is not None and count >= limit and not only_observes:
            return False
        self._counts[principal] = count + 1
        return True

    def leave(self, principal: KafkaPrincipal) -> None:
        """Count a connection no more."""
        count = self._counts[principal] - 1
        if count:
            self._counts[principal] = count
        else:
            del self._counts[principal]
