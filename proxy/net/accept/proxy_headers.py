"""Connections of load balancers that wait for their PROXY header."""

from __future__ import annotations

import socket

from protocol.proxy_protocol import ProxyHeaderReader
from proxy.base.clock import now_ms
from proxy.base.close_reason import CloseReason
from proxy.net.accept.first_bytes import Arrival, GoOn, Peer, PreambleReader, PreambleReaders
from proxy.telemetry.counters import bump

PEEK_BYTES = 4_096


class ProxyHeaders(PreambleReaders):
    """Reads the header of each arrival."""

    too_late = CloseReason.PROXY_HEADER_DEADLINE
    what = "header"

    def read(self, arrival: Arrival, go_on: GoOn) -> None:
        """Read the header of `arrival`; then it is passed to `go_on` with the following bytes still in the socket, or ends."""
        self.enter(_Header(self, arrival, go_on))

    def changed(self) -> None:
        """Update the counter."""
        self.owner.counters.proxy_headers_waiting = len(self)


class _Header(PreambleReader):
    """Peeks at bytes in the kernel's buffer, and consumes only those of the header."""

    __slots__ = ("_go_on", "_reader")

    def __init__(self, readers: ProxyHeaders, arrival: Arrival, go_on: GoOn) -> None:
        super().__init__(readers, arrival)
        self._go_on = go_on
        self._reader = ProxyHeaderReader()

    def take(self) -> None:
        """Consume the available bytes of the header."""
        while True:
            data = self.arrival.sock.recv(PEEK_BYTES, socket.MSG_PEEK)
            if not data:
                self.ended_by_peer(CloseReason.CLIENT_CLOSED, "in the middle of its PROXY header")
                return
            if self._reader.header is not None:  # the load balancer itself is the client, and sends a request
                self._done(self.arrival.peer, "local")
                return
            self.arrival.sock.recv(self._reader.feed(data))
            header = self._reader.header
            if header is not None and not header.local:
                self._done(header.source or self.arrival.peer, "address" if header.source else "unknown")
                return

    def _done(self, peer: Peer, outcome: str) -> None:
        self._note(outcome)
        self.leave()
        self.arrival.peer, self.arrival.since_ms = peer, now_ms()
        self._go_on(self.arrival)

    def _note(self, outcome: str) -> None:
        bump(self.readers.owner.counters.proxy_headers, outcome)

    def ended_by_peer(self, reason: CloseReason, detail: str) -> None:
        """Load balancers connect and close, or connect, send LOCAL and close, as a health check."""
        header = self._reader.header
        if header is not None or not self._reader.begun:
            if header is not None:
                self._note("local")
            self.end(CloseReason.HEALTH_CHECK)
        else:
            self.end(reason, detail)

    def late(self) -> None:
        """End the connection, because the header, or the bytes after LOCAL, did not arrive in time."""
        if self._reader.header is not None:
            self._note("local")
            self.end(CloseReason.FIRST_FRAME_DEADLINE)
        else:
            self.end(CloseReason.PROXY_HEADER_DEADLINE, "its header began" if self._reader.begun else "no byte came")
