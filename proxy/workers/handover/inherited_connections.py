"""The connections that the workers of a replaced supervisor still serve, as the new supervisor counts them."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from proxy.session.login.principal_connections import PrincipalConnections
from proxy.workers.handover.messages import ConnectionsChanged
from quota.connections.connection_quotas import ConnectionQuotas
from quota.connections.ip_connections import IpKey
from quota.entity import KafkaPrincipal

K = TypeVar("K")


class InheritedConnections:
    """Counts connections of another process in the quotas of this one, and knows how many of them are left."""

    def __init__(self, quotas: ConnectionQuotas, principals: PrincipalConnections) -> None:
        self._quotas = quotas
        self._principals_of_all = principals
        self._listeners: Counter[str] = Counter()
        self._addresses: Counter[IpKey] = Counter()
        self._principals: Counter[KafkaPrincipal] = Counter()

    def change(self, changes: ConnectionsChanged) -> None:
        """Apply changes; no count of the other process falls below 0."""
        for name, change in changes.listeners:
            self._quotas.change_slots(name, _added(self._listeners, name, change))
        for table, address, change in changes.addresses:
            self._quotas.ips.change((table, address), _added(self._addresses, (table, address), change))
        for kind, name, change in changes.principals:
            principal = KafkaPrincipal(kind, name)
            self._principals_of_all.change(principal, _added(self._principals, principal, change))

    def release(self) -> None:
        """Stop counting the connections that are left, since the other process has ended."""
        self.change(
            ConnectionsChanged(
                [(name, -count) for name, count in self._listeners.items()],
                [(table, address, -count) for (table, address), count in self._addresses.items()],
                [(one.type, one.name, -count) for one, count in self._principals.items()],
            )
        )


def _added(counts: Counter[K], key: K, change: int) -> int:
    """Add `change` to a count, which does not fall below 0, and return the change of the count."""
    change = max(change, -counts[key])
    counts[key] += change
    if not counts[key]:
        del counts[key]
    return change
