"""The new supervisor's side of a handover: from a running supervisor, or from a worker of one that has ended."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.base.errors import StartError
from proxy.net.accept.client_listeners import Port
from proxy.telemetry import log
from proxy.workers.handover.channel import Channel, ChannelClosed, changes_from, connected
from proxy.workers.handover.messages import (
    PROTOCOL,
    AskPorts,
    BucketState,
    ConnectionsChanged,
    Failed,
    Handed,
    HandedAll,
    HandedRates,
    Offer,
    Refused,
    Taken,
    TakeOver,
)
from proxy.workers.handover.parts import ADMIN_PORT, Broker
from proxy.workers.handover.place import Place

TAKEOVER_PID_VARIABLE: Final = "SLUICE_TAKES_OVER"
"""Environment variable that a supervisor sets for the new version that it starts; the value is the supervisor's process id."""
SOCKET_PATH_BYTES_MAX: Final = 107
"""Source: `sun_path` of linux/un.h, 108 bytes with the zero at the end."""
OFFER_TIMEOUT_S: Final = 5.0
PORTS_TIMEOUT_S: Final = 10.0


@dataclass
class Inherited:
    """The ports and the state that were handed over."""

    ports: list[Port] = field(default_factory=list)
    brokers: list[Broker] = field(default_factory=list)
    reached: list[Broker] = field(default_factory=list)
    buckets: list[BucketState] = field(default_factory=list)
    rates: list[HandedRates] = field(default_factory=list)
    connections: list[ConnectionsChanged] = field(default_factory=list)

    def add(self, message: object, descriptors: Sequence[int]) -> None:
        """Add a part of the handover; the sockets of ports belong to this object."""
        if isinstance(message, Handed):
            for (listener, address), descriptor in zip(message.ports, descriptors, strict=True):
                self.ports.append(Port(listener, address, socket.socket(fileno=descriptor)))
            self.brokers += message.brokers
            self.reached += message.reached
            self.buckets += message.buckets
        elif isinstance(message, HandedRates):
            self.rates.append(message)
        elif isinstance(message, ConnectionsChanged):
            self.connections.append(message)

    def take_admin_sockets(self, address: str) -> list[socket.socket]:
        """Remove the sockets of the admin port, and return those of this address; others are closed."""
        found = [port for port in self.ports if port.listener == ADMIN_PORT]
        self.ports = [port for port in self.ports if port.listener != ADMIN_PORT]
        for port in found:
            if port.address != address:
                port.sock.close()
        return [port.sock for port in found if port.address == address]


class Predecessor:
    """The process that this one replaces: a supervisor, or a worker without one.

    Attributes:
        numbers: of the workers that continue to serve their connections.
        segment: descriptor of the segment of shared usage; this process owns it.
    """

    def __init__(self, channel: Channel, handover_listener: socket.socket, numbers: list[int], segment: int) -> None:
        self._channel = channel
        self._handover_socket = handover_listener
        self.numbers = numbers
        self.segment = segment

    async def inherit(self) -> Inherited:
        """Let the predecessor stop accepting, and return what it hands over.

        Raises:
            StartError: the predecessor closed the connection, or sent nothing within `PORTS_TIMEOUT_S` seconds.
        """
        found = Inherited()
        try:
            await self._channel.send(AskPorts())
            while True:
                message, descriptors = await self._channel.receive(PORTS_TIMEOUT_S)
                if isinstance(message, HandedAll):
                    return found
                found.add(message, descriptors)
        except ChannelClosed as error:
            raise StartError(f"the Sluice to replace does not hand over its ports: {error}") from None

    async def taken(self) -> None:
        """Report that this process accepts, and shut down the old socket, so that workers release their duplicates of ports.

        The channel stays open for `changes`.
        """
        with contextlib.suppress(OSError):
            self._handover_socket.shutdown(socket.SHUT_RDWR)
        await self._send_last(Taken())

    async def changes(self) -> AsyncIterator[ConnectionsChanged]:
        """Yield the changes of open connections of the old workers, until the predecessor ends or sends what cannot be read."""
        try:
            async for message in changes_from(self._channel):
                yield message
        finally:
            self._channel.close()

    async def failed(self, lines: list[str]) -> None:
        """Report that this process cannot start, one line for each problem."""
        await self._send_last(Failed(lines))
        self._channel.close()

    async def _send_last(self, message: Taken | Failed) -> None:
        try:
            await self._channel.send(message)
        except ChannelClosed as error:
            log.info("predecessor_gone", problem=str(error))
        self._handover_socket.close()


async def claim_place(place: Place, *, takes_over: bool) -> Predecessor | None:
    """Become the supervisor of a runtime folder; return the process to replace, None: there is none.

    Args:
        takes_over: whether this process is to replace a running supervisor.

    Raises:
        StartError: a supervisor runs, and is not to be replaced, refuses or does not answer; or the path of the folder is too long.
    """
    spare = SOCKET_PATH_BYTES_MAX - len(os.fsencode(place.socket_path))
    if spare < 0:
        longest = len(os.fsencode(place.folder)) + spare
        raise StartError(f"runtime_dir: {place.folder} is too long for a socket in it; name a folder of at most {longest} bytes")
    if not place.try_lock() and not takes_over:
        raise StartError(
            f"runtime_dir: a Sluice runs at {place.folder} already; sluice upgrade puts a new one in its place, "
            "and another Sluice needs another runtime_dir"
        )
    channel = connected(place.socket_path)
    if channel is None:
        if place.lock is None:
            raise StartError(f"runtime_dir: the running Sluice at {place.folder} does not answer")
        return None
    try:
        await channel.send(TakeOver(PROTOCOL, os.getpid()))
        message, descriptors = await channel.receive(OFFER_TIMEOUT_S)
    except ChannelClosed as error:
        channel.close()
        if place.lock is None:
            raise StartError(f"runtime_dir: the running Sluice at {place.folder} does not answer: {error}") from None
        log.warning("workers_silent", problem=str(error))
        return None
    if isinstance(message, Refused) or not isinstance(message, Offer):
        channel.close()
        raise StartError(f"the Sluice at {place.folder} is not replaced: {message.problem if isinstance(message, Refused) else 'no offer'}")
    handover_listener, segment, *lock = descriptors
    if place.lock is None:
        place.inherit_lock(lock[0])
    return Predecessor(channel, socket.socket(fileno=handover_listener), message.numbers, segment)
