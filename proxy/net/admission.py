"""Every listener's way in, and what they have in common: the quotas, the sockets that are held, who makes room for whom."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from proxy import log
from proxy.clock import now_ms
from proxy.counters import Counters, bump
from proxy.failed_logins import FailedLogins
from proxy.net.gate import Gate, OnPassed, Peer
from proxy.net.held_sockets import HELD_MAX, HeldSockets
from proxy.session.close_reason import CloseReason
from proxy.session.enforcement import Enforcement
from proxy.session.policy import Policy
from quota.connection_quotas import ConnectionQuotas

if TYPE_CHECKING:
    from proxy.net.listener import Acceptor

BOOTSTRAP_TABLE: Final = -1
"""Addresses are counted for each broker; the bootstrap port stands for none and counts by itself."""
CLUSTER_TABLE: Final = -2
HELD_BESIDE_ALL: Final = 512
"""So many sockets are held even when every connection that may be is there: a part of the descriptors that are spare."""


class Admission:
    """Decides on each accepted socket before anything else exists for it.

    Attributes:
        quotas: the arithmetic.
        per_cluster: addresses are counted over all brokers together; otherwise for each by itself.
        only_observes: of the connection that is decided on now: rates and limits of addresses are worked out and not acted upon;
            `max_connections` always is.
        failed_logins: who may not connect because its logins fail.
        make_room: closes a connection that is not of the protected listener; set by who keeps the connections.
    """

    def __init__(self, quotas: ConnectionQuotas, counters: Counters, policy: Policy, *, per_cluster: bool) -> None:
        self.quotas = quotas
        self.counters = counters
        self.per_cluster = per_cluster
        self.make_room: Callable[[], None] = lambda: None
        self.gates: dict[str, Gate] = {}
        self._policy = policy
        self.only_observes = False
        self.failed_logins = FailedLogins()
        self._held = HeldSockets(lambda: bump(counters.closes, CloseReason.IP_CONNECTION_RATE.value))

    def judges_listener(self, listener: str) -> bool:
        """Look up what holds for a connection of this listener that is decided on now; False: rates count nothing."""
        return self._is_judged(self._policy.of_listener(listener))

    def judges_address(self, listener: str, address: str) -> bool:
        """The same for one whose address is known: False: its rate counts nothing."""
        return self._is_judged(self._policy.of_address(listener, address))

    def _is_judged(self, enforcement: Enforcement | None) -> bool:
        self.only_observes = enforcement is None or enforcement.only_observes
        return enforcement is not None

    def count_over_all(self, *, per_cluster: bool) -> None:
        """Count addresses over all brokers together, or for each by itself. Rates begin anew; who is connected counts where he came in."""
        if per_cluster != self.per_cluster:
            self.per_cluster = per_cluster
            self.quotas.ips.forget_rates()

    @property
    def held(self) -> int:
        """How many sockets are held."""
        return len(self._held)

    def gate(self, listener: str, acceptors: Mapping[int | None, Acceptor], on_passed: OnPassed) -> Gate:
        """Make the way in of a listener, all of whose ports are in `acceptors`."""
        gate = self.gates[listener] = Gate(self, self.quotas.listeners[listener], acceptors, on_passed)
        return gate

    def table_of(self, node_id: int | None) -> int:
        """Return in which table the clients of a port count."""
        if self.per_cluster:
            return CLUSTER_TABLE
        return BOOTSTRAP_TABLE if node_id is None else node_id

    def login_failed(self, peer: Peer) -> None:
        """The broker let a client not in."""
        self.failed_logins.note(self._failing_as(peer), now_ms())

    def has_failed_too_often(self, peer: Peer, now_ms: int) -> bool:
        """Return whether a new connection of a client is refused for the logins of its address."""
        return bool(self.failed_logins) and self.failed_logins.refuses(self._failing_as(peer), now_ms)

    def _failing_as(self, peer: Peer) -> str:
        return self.quotas.ips.key_of(CLUSTER_TABLE, peer[0])[1]

    def slot_freed(self) -> None:
        """Somebody left, or limits changed: who waits may come."""
        for gate in self.gates.values():
            gate.wake()

    def enforcement_changed(self) -> None:
        """Switches changed, or the mode."""
        for gate in self.gates.values():
            gate.release_unenforced()

    def hold(self, listener: str, sock: socket.socket, peer: Peer, until_ms: int) -> None:
        """Keep the socket of a client that came too fast; where there are too many already, close it at once."""
        free_slots = max(0, self.quotas.max_connections - self.quotas.total)
        if len(self._held) >= min(HELD_MAX, 2 * free_slots + HELD_BESIDE_ALL):
            self.refuse(listener, sock, peer, CloseReason.IP_CONNECTION_RATE_UNHELD)
            return
        self._held.hold(sock, until_ms)
        _tell(listener, peer, CloseReason.IP_CONNECTION_RATE)

    def refuse(self, listener: str, sock: socket.socket, peer: Peer, reason: CloseReason, limit: int | None = None) -> None:
        """Close a socket for which nothing else exists yet."""
        sock.close()
        bump(self.counters.closes, reason.value)
        _tell(listener, peer, reason, limit)

    def close(self, reason: CloseReason) -> None:
        """Let in nobody any more."""
        for gate in self.gates.values():
            gate.close(reason)
        self._held.close()


def table_name(table: int) -> str:
    """Return whose table it is: a node id as text, "bootstrap" or "cluster"."""
    return {BOOTSTRAP_TABLE: "bootstrap", CLUSTER_TABLE: "cluster"}.get(table, str(table))


def _tell(listener: str, peer: Peer, reason: CloseReason, limit: int | None = None) -> None:
    def fields() -> dict[str, object]:
        told: dict[str, object] = {"reason": reason.value, "peer": f"{peer[0]}:{peer[1]}", "listener": listener}
        return told if limit is None else {**told, "limit": limit}

    log.info_of("connection_refused", limit_key=f"connection_refused {reason.value}", fields=fields)
