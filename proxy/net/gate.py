"""The way in of one listener: who may come now, who waits with all behind them, who is turned away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from proxy.clock import now_ms
from proxy.counters import bump
from proxy.session.close_reason import CloseReason
from quota.client_address import plain_address
from quota.connection_quotas import ACCEPTED, ListenerQuota, Outcome
from quota.ip_connections import IpKey

if TYPE_CHECKING:
    from proxy.net.admission import Admission
    from proxy.net.listener import Acceptor

Peer = tuple[str, int]
OnPassed = Callable[[int | None, socket.socket, Peer], None]


class _Waiting(NamedTuple):
    """A socket that was accepted too early, or while no slot was free."""

    node_id: int | None
    sock: socket.socket
    peer: Peer
    since_ms: int
    until_ms: int


class Gate:
    """One listener with all its ports. While somebody waits here, none of them accepts: the rest stays in the kernel's queue.

    A connection comes through in two steps, because its address may be known later than that it is there:
    `arrived` judges it by the rates of process and listener, takes a slot and calls `on_passed`; then `admit` judges it by its address.
    Whoever has passed gives the slot back once: by `left` after it was admitted, by `left_unknown` before.
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
        """Since when somebody waits; None: nobody does."""
        return None if self._waiting is None else self._waiting.since_ms

    # By the listener

    def arrived(self, node_id: int | None, sock: socket.socket, peer: Peer) -> None:
        """A port of this listener accepted a connection: it passes now, or all ports stop until it may."""
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
        """A port more."""
        if self._waiting is not None:
            acceptor.stop()

    def wake(self) -> None:
        """A slot may be free, or a limit is another: let in who waits, if it may."""
        waiting = self._waiting
        if waiting is None:
            return
        now = now_ms()
        if now < waiting.until_ms:
            self._arm(waiting.until_ms - now)
        elif self._quotas.has_slot(self.quota):  # otherwise whoever leaves wakes us
            self._waiting = None
            self.quota.record_blocked(now - waiting.since_ms, now)
            self._pass(waiting.node_id, waiting.sock, waiting.peer)
            for acceptor in list(self._acceptors.values()):
                acceptor.go_on()

    def release_unenforced(self) -> None:
        """Switches changed: who waits for the sake of a rate that is not enforced any more comes in, if a slot is free."""
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
        if self.quota.protected and self._quotas.total > self._quotas.max_connections:
            self._admission.make_room()

    # By the address

    def admit(self, node_id: int | None, sock: socket.socket, peer: Peer) -> IpKey | None:
        """Judge a connection that has passed by the address it really comes from.

        Returns:
            The key under which it counts, which `left` wants when it ends; None when the socket is taken care of: held, or closed.
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
        """A connection that was admitted has ended."""
        self._quotas.leave(self.quota, key)
        self._admission.slot_freed()

    def left_unknown(self) -> None:
        """A connection that passed has ended before it was known where it came from."""
        self._quotas.give_slot(self.quota)
        self._admission.slot_freed()

    def close(self, reason: CloseReason) -> None:
        """Let in nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._admission.refuse(self.quota.name, waiting.sock, waiting.peer, reason)
