"""What a worker has for a new supervisor, should its own die: duplicates of all ports, and of the socket where supervisors meet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from proxy.net.accept.client_listeners import Port
from proxy.telemetry import log
from proxy.workers.handover.meeting import Meeting, Part
from proxy.workers.handover.messages import Offer, Refused
from proxy.workers.handover.parts import Broker, parts_of

HELD_S: Final = 60.0
"""So long ports stay open without a supervisor; clients wait in the kernel's queues."""


class Orphan:
    """A worker's duplicates; a `Replaceable` once the supervisor is gone.

    Args:
        number: of the worker.
        segment: descriptor of the memory that workers share usage by.
        brokers: tells where brokers are.
    """

    def __init__(self, number: int, segment: int, brokers: Callable[[], list[Broker]]) -> None:
        self._number = number
        self._segment = segment
        self._brokers = brokers
        self._ports: dict[tuple[str, str], Port] = {}
        self._meeting_socket: socket.socket | None = None
        self._meeting: Meeting | None = None
        self._let_go = asyncio.Event()

    def keep_port(self, port: Port) -> None:
        """Hold a duplicate of a port."""
        before = self._ports.pop((port.listener, port.address), None)
        if before is not None:
            before.sock.close()
        self._ports[port.listener, port.address] = port

    def keep_meeting(self, sock: socket.socket) -> None:
        """Hold a duplicate of the supervisor's socket."""
        if self._meeting_socket is not None:
            self._meeting_socket.close()
        self._meeting_socket = sock

    async def offer_until_taken(self, held_s: float = HELD_S) -> None:
        """Keep the ports open until a new supervisor has them, but for `held_s` at most."""
        if self._meeting_socket is None:
            self.close()
            return
        sock, self._meeting_socket = self._meeting_socket, None
        self._meeting = Meeting(sock, self, None, self._let_go.set)
        try:
            async with asyncio.timeout(held_s):
                await self._let_go.wait()
        except TimeoutError:
            log.warning("ports_closed", worker=self._number, held_s=held_s)
        self.close()

    def close(self) -> None:
        """Hold nothing any more."""
        if self._meeting is not None:
            self._meeting.close()
        if self._meeting_socket is not None:
            self._meeting_socket.close()
            self._meeting_socket = None
        while self._ports:
            self._ports.popitem()[1].sock.close()

    # --- at the meeting

    def offer(self, _pid: int) -> tuple[Offer, Sequence[int]] | Refused:
        """Offer everything to who comes: a supervisor that holds the lock of the place."""
        return Offer([self._number]), [self._segment]

    async def hand_over(self) -> Sequence[Part]:
        """Return what changes hands; nothing is accepted here."""
        return parts_of(list(self._ports.values()), self._brokers())

    def taken(self, pid: int) -> None:
        """The new supervisor accepts: no worker has to hold ports any more."""
        log.info("ports_handed_over", pid=pid)
        self._let_go.set()

    async def kept(self, problem: str, *, is_ending: bool) -> None:
        """It does not; the next one may."""
        log.warning("ports_kept", problem=problem, is_ending=is_ending)
