"""Answers connections to the supervisor's socket. A supervisor does so, and so does a worker after its supervisor has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol

from proxy.telemetry import log
from proxy.workers.handover.channel import Channel, ChannelClosed, changes_from
from proxy.workers.handover.messages import (
    PROTOCOL,
    AnyMessage,
    AskPorts,
    AskUpgrade,
    ConnectionsChanged,
    Failed,
    HandedAll,
    Offer,
    Refused,
    ReportConnections,
    Taken,
    TakeOver,
    UpgradeEnded,
)

ASK_S: Final = 5.0
"""Time limit for the first message of a connection."""
START_S: Final = 60.0
"""Time limit for a new supervisor to start its workers and to read the quotas."""
ACCEPT_S: Final = 10.0
"""Time limit from the handover until the new supervisor accepts; no connection is accepted meanwhile."""

Follow = Callable[[AsyncIterator[ConnectionsChanged]], Awaitable[None]]
"""Counts the connections of another process until it ends."""

Part = tuple[AnyMessage, Sequence[int]]
"""A message and its descriptors."""


class _CannotStart(ChannelClosed):
    """The new supervisor reported that it cannot start."""


class Replaceable(Protocol):
    """A process that a new supervisor can replace."""

    def offer(self, pid: int) -> tuple[Offer, Sequence[int]] | Refused:
        """Return an offer to the process `pid` and its descriptors: the segment of shared usage, and the lock if this process holds it."""

    async def hand_over(self) -> Sequence[Part]:
        """Stop accepting; return the ports and the state to hand over."""

    def taken(self, pid: int) -> None:
        """React to a completed handover: the process `pid` accepts connections."""

    async def report(self, channel: Channel) -> None:
        """Tell the process that has taken over of connections that end here, until this process ends.

        Raises:
            ChannelClosed: the other process has ended.
        """

    async def kept(self, problem: str, *, is_ending: bool) -> None:
        """Continue after a failed handover.

        Args:
            problem: the reason, one line.
            is_ending: the new process reported the failure, has released everything and ends by itself; False: its state is unknown.
        """


class HandoverListener:
    """Answers connections to a listening socket; it allows one handover at a time.

    Args:
        sock: the listening socket. Other processes may share it; one of them answers each connection.
        upgrade: starts the new version and returns the result; None: this process cannot start one.
        on_closed: called when another process has shut down the shared socket.
        follow: counts the connections of a worker whose supervisor has ended; None: this process counts none.
    """

    def __init__(
        self,
        sock: socket.socket,
        replaceable: Replaceable,
        upgrade: Callable[[], Awaitable[UpgradeEnded]] | None,
        on_closed: Callable[[], None],
        follow: Follow | None = None,
    ) -> None:
        self._sock = sock
        self._replaceable = replaceable
        self._upgrade = upgrade
        self._on_closed = on_closed
        self._follow = follow
        self._loop = asyncio.get_running_loop()
        self._answering: set[asyncio.Task[None]] = set()
        self.is_replacing = False
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        """Shut down the socket, for this process and for every other process that shares it."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()

    async def stop(self) -> None:
        """Close the socket and cancel the answers in progress."""
        self.close()
        for task in list(self._answering):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _readable(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            if _is_shut_down(self._sock):
                self.close()
                self._on_closed()
            return  # otherwise another process that shares the socket has taken the connection
        task = asyncio.ensure_future(self._answer(Channel(sock)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, channel: Channel) -> None:
        pid, user = channel.peer
        try:
            if user != os.geteuid():
                log.warning("handover_refused", limit_key="handover_refused", pid=pid, user=user)
                return
            message, _ = await channel.receive(ASK_S)
            if isinstance(message, AskUpgrade) and self._upgrade is not None:
                await channel.send(await self._upgrade())
            elif isinstance(message, ReportConnections) and self._follow is not None:
                await self._follow(changes_from(channel))
            elif isinstance(message, TakeOver) and await self._be_replaced(channel, message, pid):
                await self._replaceable.report(channel)
        except ChannelClosed:
            pass
        finally:
            channel.close()

    async def _be_replaced(self, channel: Channel, asked: TakeOver, pid: int) -> bool:
        """Hand over; return whether the other process has taken over."""
        if asked.protocol != PROTOCOL:
            await channel.send(
                Refused(f"the running Sluice hands over by protocol {PROTOCOL}, the new one by {asked.protocol}: restart it")
            )
            return False
        offered = Refused("it is being replaced already") if self.is_replacing else self._replaceable.offer(pid)
        if isinstance(offered, Refused):
            await channel.send(offered)
            return False
        self.is_replacing = True
        try:
            offer, descriptors = offered
            await channel.send(offer, [self._sock.fileno(), *descriptors])
            await _expect(channel, AskPorts, START_S)
            for part, descriptors in await self._replaceable.hand_over():
                await channel.send(part, descriptors)
            await channel.send(HandedAll())
            await _expect(channel, Taken, ACCEPT_S)
        except ChannelClosed as error:
            await self._replaceable.kept(str(error), is_ending=isinstance(error, _CannotStart))
            return False
        except Exception as error:
            await self._replaceable.kept(f"{type(error).__name__}: {error}", is_ending=False)
            raise
        else:
            self._replaceable.taken(pid)
            return True
        finally:
            self.is_replacing = False


def _is_shut_down(sock: socket.socket) -> bool:
    """Whether a process that shares a listening socket has shut it down; the error of `accept` does not distinguish this."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


async def _expect(channel: Channel, kind: type[AskPorts | Taken], timeout_s: float) -> None:
    """Wait for a message of this class.

    Raises:
        ChannelClosed: a message of another class came, or none within `timeout_s` seconds.
    """
    message, _ = await channel.receive(timeout_s)
    if isinstance(message, Failed):
        raise _CannotStart("; ".join(message.lines))
    if not isinstance(message, kind):
        raise ChannelClosed(f"{type(message).__name__} came instead of {kind.__name__}")
