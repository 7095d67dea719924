"""Requests that have to be here in whole and are long: who sends one is read again when its turn comes."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, Final

from proxy.net.flow import LONG_REQUEST

if TYPE_CHECKING:
    from proxy.net.client_channel import ClientChannel

READS_PER_TURN: Final = 4
"""A read brings up to 256 KiB that are kept, which takes 0.1 to 0.2 ms."""


class LongRequests:
    """Clients that have sent part of a long request; a few of them are read in a turn of the event loop, however many they are."""

    __slots__ = ("_is_due", "_loop", "_waiting")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[ClientChannel, None] = {}  # in the order of their turns
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, client: ClientChannel) -> None:
        """Read no more from this client until its turn."""
        client.pause(LONG_REQUEST)
        self._waiting[client] = None
        self._wake()

    def _wake(self) -> None:
        if not self._is_due and self._waiting:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        for client in list(self._waiting)[:READS_PER_TURN]:
            del self._waiting[client]
            client.resume(LONG_REQUEST)
        self._wake()
