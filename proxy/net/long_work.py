"""Frames that take long to look at: one step of one of them in a turn of the event loop, whoever has how many."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.net.connection import Connection


class LongWork:
    """Connections with a long frame, of the client or of the broker; they take turns.

    However many there are, everybody else waits for one step (`protocol.steps.ITEMS_PER_STEP`) between two looks at the sockets.
    """

    __slots__ = ("_is_due", "_loop", "_waiting")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Connection, None] = {}  # in the order of their turns
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: Connection) -> None:
        """This connection has a long frame; nothing happens when it waits already."""
        self._waiting[connection] = None
        self._wake()

    def _wake(self) -> None:
        if not self._is_due and self._waiting:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if not self._waiting:
            return
        connection = next(iter(self._waiting))
        del self._waiting[connection]
        if connection.go_on():
            self._waiting[connection] = None
        self._wake()
