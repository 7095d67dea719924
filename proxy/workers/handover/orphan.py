"""Duplicates of the supervisor's sockets in a worker, for a new supervisor to take over if the supervisor dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from proxy.net.accept.client_listeners import Port
from proxy.telemetry import log
from proxy.workers.handover.channel import Channel
from proxy.workers.handover.handover_listener import HandoverListener, Part
from proxy.workers.handover.messages import Offer, Refused
from proxy.workers.handover.parts import KnownBrokers, parts_of

HELD_S: Final = 60.0
"""Time for which ports stay open without a supervisor; new connections wait in the kernel's accept queue."""


class Orphan:
    """A worker's duplicates of all ports and of the supervisor's socket; a `Replaceable` after the supervisor has ended.

    Args:
        number: of the worker.
        segment: descriptor of the segment of shared usage.
        brokers: returns the known brokers.
    """

    def __init__(self, number: int, segment: int, brokers: Callable[[], KnownBrokers]) -> None:
        self._number = number
        self._segment = segment
        self._brokers = brokers
        self._ports: dict[tuple[str, str], Port] = {}
        self._handover_socket: socket.socket | None = None
        self._handover_listener: HandoverListener | None = None
        self._let_go = asyncio.Event()

    def keep_port(self, port: Port) -> None:
        """Keep the duplicate of a port; it replaces an older one of the same listener and address."""
        before = self._ports.pop((port.listener, port.address), None)
        if before is not None:
            before.sock.close()
        self._ports[port.listener, port.address] = port

    def keep_handover_socket(self, sock: socket.socket) -> None:
        """Keep the duplicate of the supervisor's socket; it replaces an older one."""
        if self._handover_socket is not None:
            self._handover_socket.close()
        self._handover_socket = sock

    async def offer_until_taken(self, held_s: float = HELD_S) -> None:
        """Keep the ports open until a new supervisor accepts on them, for at most `held_s` seconds; then close them."""
        if self._handover_socket is None:
            self.close()
            return
        sock, self._handover_socket = self._handover_socket, None
        self._handover_listener = HandoverListener(sock, self, None, self._let_go.set)
        try:
            async with asyncio.timeout(held_s):
                await self._let_go.wait()
        except TimeoutError:
            log.warning("ports_closed", worker=self._number, held_s=held_s)
        self.close()

    def close(self) -> None:
        """Close all duplicates."""
        if self._handover_listener is not None:
            self._handover_listener.close()
        if self._handover_socket is not None:
            self._handover_socket.close()
            self._handover_socket = None
        while self._ports:
            self._ports.popitem()[1].sock.close()

    # --- called by `HandoverListener`

    def offer(self, _pid: int) -> tuple[Offer, Sequence[int]] | Refused:
        """Return an offer to any process: only a supervisor that holds the lock of the folder connects here."""
        return Offer([self._number]), [self._segment]

    async def hand_over(self) -> Sequence[Part]:
        """Return the ports and the known brokers; a worker does not accept, so there is nothing to stop."""
        return parts_of(list(self._ports.values()), self._brokers())

    def taken(self, pid: int) -> None:
        """Release the ports: the new supervisor accepts connections."""
        log.info("ports_handed_over", pid=pid)
        self._let_go.set()

    async def report(self, channel: Channel) -> None:
        """Report nothing here: each worker reports its own connections (`ServedConnections`)."""

    async def kept(self, problem: str, *, is_ending: bool) -> None:
        """Keep the ports for the next supervisor."""
        log.warning("ports_kept", problem=problem, is_ending=is_ending)
