"""Answers those who come to the socket: a supervisor does, and a worker whose supervisor is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from proxy.telemetry import log
from proxy.workers.handover.channel import Channel, ChannelClosed
from proxy.workers.handover.messages import (
    PROTOCOL,
    AskPorts,
    AskUpgrade,
    Failed,
    Handed,
    HandedAll,
    Offer,
    Refused,
    Taken,
    TakeOver,
    UpgradeEnded,
)

ASK_S: Final = 5.0
"""How long it may take who comes to say what it wants."""
START_S: Final = 60.0
"""How long a new supervisor may take until its workers serve and it knows the quotas."""
ACCEPT_S: Final = 10.0
"""How long it may take then until it accepts; no connection is accepted meanwhile."""

Part = tuple[Handed, Sequence[int]]
"""A message, and the descriptors that go with it."""


class _CannotStart(ChannelClosed):
    """Who was to take over says that it cannot."""


class Replaceable(Protocol):
    """What another process can take the place of."""

    def offer(self, pid: int) -> tuple[Offer, Sequence[int]] | Refused:
        """Say what the process `pid` would take over; the descriptors are a segment and perhaps a lock."""

    async def hand_over(self) -> Sequence[Part]:
        """Accept no more; return what changes hands."""

    def taken(self, pid: int) -> None:
        """The process `pid` accepts."""

    async def kept(self, problem: str, *, is_ending: bool) -> None:
        """Nobody took over; go on. Who was to ends by itself and has let go of everything, or else is not heard of any more."""


class Meeting:
    """Answers at a listening socket, one who takes over at a time.

    Args:
        sock: may be shared with other processes; each of those who come is answered by one of them.
        upgrade: starts the new version; None: who answers cannot.
        on_closed: called when another process has closed the meeting for all.
    """

    def __init__(
        self,
        sock: socket.socket,
        replaceable: Replaceable,
        upgrade: Callable[[], Awaitable[UpgradeEnded]] | None,
        on_closed: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._replaceable = replaceable
        self._upgrade = upgrade
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._answering: set[asyncio.Task[None]] = set()
        self.is_replacing = False
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        """Answer no more, and let no other process that shares the socket answer."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()

    async def stop(self) -> None:
        """End what was begun, too."""
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
            return  # else another process that shares it was faster
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
            elif isinstance(message, TakeOver):
                await self._be_replaced(channel, message, pid)
        except ChannelClosed:
            pass
        finally:
            channel.close()

    async def _be_replaced(self, channel: Channel, asked: TakeOver, pid: int) -> None:
        if asked.protocol != PROTOCOL:
            await channel.send(
                Refused(f"the running Sluice hands over by protocol {PROTOCOL}, the new one by {asked.protocol}: restart it")
            )
            return
        offered = Refused("it is being replaced already") if self.is_replacing else self._replaceable.offer(pid)
        if isinstance(offered, Refused):
            await channel.send(offered)
            return
        self.is_replacing = True
        try:
            offer, descriptors = offered
            await channel.send(offer, [self._sock.fileno(), *descriptors])
            await _expect(channel, AskPorts, START_S)
            for handed, descriptors in await self._replaceable.hand_over():
                await channel.send(handed, descriptors)
            await channel.send(HandedAll())
            await _expect(channel, Taken, ACCEPT_S)
        except ChannelClosed as error:
            await self._replaceable.kept(str(error), is_ending=isinstance(error, _CannotStart))
        except Exception as error:
            await self._replaceable.kept(f"{type(error).__name__}: {error}", is_ending=False)
            raise
        else:
            self._replaceable.taken(pid)
        finally:
            self.is_replacing = False


def _is_shut_down(sock: socket.socket) -> bool:
    """Whether a process that shares a listening socket has closed it for all: `accept` alone does not tell."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


async def _expect(channel: Channel, kind: type[AskPorts | Taken], timeout_s: float) -> None:
    """Wait for a message of this kind.

    Raises:
        ChannelClosed: another one came, or none.
    """
    message, _ = await channel.receive(timeout_s)
    if isinstance(message, Failed):
        raise _CannotStart("; ".join(message.lines))
    if not isinstance(message, kind):
        raise ChannelClosed(f"{type(message).__name__} came instead of {kind.__name__}")
