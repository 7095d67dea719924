"""Applies connection quotas to accepted sockets before anything else is allocated: a socket is served, waits, is held or is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from proxy.base.clock import now_ms
from proxy.base.close_reason import CloseReason
from proxy.enforcement.address_tables import BOOTSTRAP_TABLE, CLUSTER_TABLE
from proxy.enforcement.mode import Enforcement
from proxy.enforcement.policy import Policy
from proxy.net.accept.failed_logins import FailedLogins
from proxy.net.accept.held_sockets import HELD_MAX, HeldSockets
from proxy.net.accept.listener import Acceptor
from proxy.telemetry import log
from proxy.telemetry.counters import Counters, bump
from quota.connections.client_address import plain_address
from quota.connections.connection_quotas import ACCEPTED, ConnectionQuotas, ListenerQuota, Outcome
from quota.connections.ip_connections import IpKey

Peer = tuple[str, int]
OnPassed = Callable[[int | None, socket.socket, Peer], None]
HELD_BESIDE_ALL: Final = 512
"""Number of sockets held even when the maximum of connections is open: a part of the spare descriptors."""


class _Waiting(NamedTuple):
    """A socket that was accepted while its rate was exceeded, or while no slot was free."""

    node_id: int | None
    sock: socket.socket
    peer: Peer
    since_ms: int
    until_ms: int


class ListenerAdmission:
    """One listener with all its ports. While a connection waits here, no port accepts: later connections stay in the kernel's queue.

    A connection is checked in two steps, because its client's address may be known only after it was accepted. `arrived` applies the
    rates of process and listener, takes a slot and calls `on_passed`. `admit` then applies the rates and limits of the address.
    A connection that has passed gives its slot back once: by `left` after it was admitted, by `left_unknown` before.
    """

    def __init__(self, admission: Admission, quota: ListenerQuota, acceptors: Mapping[int | None, Acceptor], on_passed: OnPassed) -> None:
        self.quota = quota
        self._admission = admission
        self._quotas = admission.quotas
        self._acceptors = acceptors
        self._on_passed = on_passed
        self._waiting: _Waiting | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def blocked_since_ms(self) -> int | None:
        """When the waiting connection was accepted, in ms; None when none waits."""
        return None if self._waiting is None else self._waiting.since_ms

    # Checks by listener

    def arrived(self, node_id: int | None, sock: socket.socket, peer: Peer) -> None:
        """Handle an accepted connection: it passes now, or all ports stop until it may pass."""
        bump(self._admission.counters.connections_accepted, self.quota.name)
        now = now_ms()
        counts = self._admission.judges_listener(self.quota.name)
        decision = self._quotas.arrive(self.quota, now, counts=counts)
        if decision is not ACCEPTED:
            until_ms = now if self._admission.only_observes else decision.until_ms
            if until_ms > now or not self._quotas.has_slot(self.quota):
                self._wait(_Waiting(node_id, sock, peer, now, until_ms))
                return
        self._pass(node_id, sock, peer)

    def joined(self, acceptor: Acceptor) -> None:
        """Add a port."""
        if self._waiting is not None:
            acceptor.stop()

    def wake(self) -> None:
        """Check the waiting connection again, because a slot may be free or a limit has changed."""
        waiting = self._waiting
        if waiting is None:
            return
        now = now_ms()
        if now < waiting.until_ms:
            self._arm(waiting.until_ms - now)
        elif self._quotas.has_slot(self.quota):  # otherwise the next connection that ends calls this again
            self._waiting = None
            self.quota.record_blocked(now - waiting.since_ms, now)
            self._pass(waiting.node_id, waiting.sock, waiting.peer)
            for acceptor in list(self._acceptors.values()):
                acceptor.go_on()

    def release_unenforced(self) -> None:
        """Admit the waiting connection if it waits only for a rate that a switch no longer enforces, and a slot is free."""
        waiting = self._waiting
        if waiting is not None and (not self._admission.judges_listener(self.quota.name) or self._admission.only_observes):
            self._waiting = waiting._replace(until_ms=min(waiting.until_ms, now_ms()))
            self.wake()

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting = waiting
        for acceptor in list(self._acceptors.values()):
            acceptor.stop()
        self._admission.counters.accepts_waited += 1
        self.wake()

    def _arm(self, wait_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, self.wake)

    def _pass(self, node_id: int | None, sock: socket.socket, peer: Peer) -> None:
        self._quotas.take_slot(self.quota)
        self._on_passed(node_id, sock, peer)
        if self.quota.protected and self._quotas.exceeds_max_connections:
            self._admission.make_room(self.quota.name)

    # Checks by address

    def admit(self, node_id: int | None, sock: socket.socket, peer: Peer) -> IpKey | None:
        """Check a connection that has passed by its client's address.

        Returns:
            The key under which it is counted, to be passed to `left`; None when the socket is held or closed.
        """
        admission = self._admission
        now = now_ms()
        key = self._quotas.ips.key_of(admission.table_of(node_id), peer[0])
        was_counted = admission.judges_listener(self.quota.name)
        counts = admission.judges_address(self.quota.name, plain_address(peer[0]))
        if counts and not admission.only_observes and admission.has_failed_too_often(peer, now):
            self._quotas.give_slot(self.quota)
            admission.refuse(self.quota.name, sock, peer, CloseReason.FAILED_LOGINS, limit=admission.failed_logins.max_per_minute)
            admission.slot_freed()
            return None
        decision = self._quotas.admit(self.quota, key, now, counts=counts, was_counted=was_counted)
        if decision is ACCEPTED:
            return key
        if admission.only_observes:
            self._quotas.take_slot(self.quota)
            self._quotas.ips.enter(key)
            return key
        if decision.outcome is Outcome.IP_THROTTLED:
            admission.hold(self.quota.name, sock, peer, now + decision.delay_ms)
        else:
            admission.refuse(self.quota.name, sock, peer, CloseReason.MAX_CONNECTIONS_PER_IP, limit=decision.limit)
        admission.slot_freed()
        return None

    def left(self, key: IpKey) -> None:
        """An admitted connection has ended."""
        self._quotas.leave(self.quota, key)
        self._admission.slot_freed()

    def left_unknown(self) -> None:
        """A connection that passed has ended before its client's address was known."""
        self._quotas.give_slot(self.quota)
        self._admission.slot_freed()

    def close(self, reason: CloseReason) -> None:
        """Stop accepting."""
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._admission.refuse(self.quota.name, waiting.sock, waiting.peer, reason)


class Admission:
    """Decides on each accepted socket before anything else is allocated for it.

    Attributes:
        quotas: computes rates and delays.
        per_cluster: addresses are counted over all brokers together; otherwise for each broker.
        only_observes: the rates and limits of addresses are only measured for the connection being checked;
            `max_connections` always applies.
        failed_logins: refuses addresses whose logins fail too often.
        make_room: closes a connection of any listener but the protected one, its argument; set by the owner of the connections.
    """

    def __init__(self, quotas: ConnectionQuotas, counters: Counters, policy: Policy, *, per_cluster: bool) -> None:
        self.quotas = quotas
        self.counters = counters
        self.per_cluster = per_cluster
        self.make_room: Callable[[str], None] = lambda _protected_listener: None
        self.listeners: dict[str, ListenerAdmission] = {}
        self._policy = policy
        self.only_observes = False
        self.failed_logins = FailedLogins()
        self._held = HeldSockets(lambda: bump(counters.closes, CloseReason.IP_CONNECTION_RATE.value))

    def judges_listener(self, listener: str) -> bool:
        """Look up the enforcement for a connection of this listener; False: its rates are not counted."""
        return self._is_judged(self._policy.of_listener(listener))

    def judges_address(self, listener: str, address: str) -> bool:
        """Look up the enforcement for a connection of this address; False: its rate is not counted."""
        return self._is_judged(self._policy.of_address(listener, address))

    def _is_judged(self, enforcement: Enforcement | None) -> bool:
        self.only_observes = enforcement is None or enforcement.only_observes
        return enforcement is not None

    def count_over_all(self, *, per_cluster: bool) -> None:
        """Count addresses over all brokers together, or per broker. Rates begin anew; open connections stay in their table."""
        if per_cluster != self.per_cluster:
            self.per_cluster = per_cluster
            self.quotas.ips.forget_rates()

    @property
    def held(self) -> int:
        """How many sockets are held."""
        return len(self._held)

    def of_listener(self, listener: str, acceptors: Mapping[int | None, Acceptor], on_passed: OnPassed) -> ListenerAdmission:
        """Return the admission of a listener whose ports are in `acceptors`."""
        made = self.listeners[listener] = ListenerAdmission(self, self.quotas.listeners[listener], acceptors, on_passed)
        return made

    def table_of(self, node_id: int | None) -> int:
        """Return the table in which the clients of a port are counted."""
        if self.per_cluster:
            return CLUSTER_TABLE
        return BOOTSTRAP_TABLE if node_id is None else node_id

    def login_failed(self, peer: Peer) -> None:
        """Count a login that the broker refused."""
        self.failed_logins.note(self._failing_as(peer), now_ms())

    def has_failed_too_often(self, peer: Peer, now_ms: int) -> bool:
        """Return whether a new connection is refused because of failed logins of its address."""
        return bool(self.failed_logins) and self.failed_logins.refuses(self._failing_as(peer), now_ms)

    def _failing_as(self, peer: Peer) -> str:
        return self.quotas.ips.key_of(CLUSTER_TABLE, peer[0])[1]

    def left(self, listener_name: str, ip_key: IpKey) -> None:
        """A connection that was admitted has ended."""
        self.listeners[listener_name].left(ip_key)

    def slot_freed(self) -> None:
        """Check waiting connections, because a connection has ended or limits have changed."""
        for one in self.listeners.values():
            one.wake()

    def enforcement_changed(self) -> None:
        """Check waiting connections after a change of switches or of the mode."""
        for one in self.listeners.values():
            one.release_unenforced()

    def hold(self, listener: str, sock: socket.socket, peer: Peer, until_ms: int) -> None:
        """Hold the socket of a client that exceeds its rate; close it at once when too many are held."""
        free_slots = max(0, self.quotas.max_connections - self.quotas.total)
        if len(self._held) >= min(HELD_MAX, 2 * free_slots + HELD_BESIDE_ALL):
            self.refuse(listener, sock, peer, CloseReason.IP_CONNECTION_RATE_UNHELD)
            return
        self._held.hold(sock, until_ms)
        _log_refusal(listener, peer, CloseReason.IP_CONNECTION_RATE)

    def refuse(self, listener: str, sock: socket.socket, peer: Peer, reason: CloseReason, limit: int | None = None) -> None:
        """Close a socket for which nothing else is allocated yet."""
        sock.close()
        bump(self.counters.closes, reason.value)
        _log_refusal(listener, peer, reason, limit)

    def close(self, reason: CloseReason) -> None:
        """Stop accepting."""
        for one in self.listeners.values():
            one.close(reason)
        self._held.close()


def _log_refusal(listener: str, peer: Peer, reason: CloseReason, limit: int | None = None) -> None:
    def fields() -> dict[str, object]:
        common: dict[str, object] = {"reason": reason.value, "peer": f"{peer[0]}:{peer[1]}", "listener": listener}
        return common if limit is None else {**common, "limit": limit}

    log.info_of("connection_refused", limit_key=f"connection_refused {reason.value}", fields=fields)
