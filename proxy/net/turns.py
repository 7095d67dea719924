"""Divides long work between turns of the event loop, one step of one connection after the other."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from proxy.base.pause_reason import LONG_REQUEST

READS_PER_TURN: Final = 4
"""A read adds up to 256 KiB, which are kept. All other connections wait for the reads of a turn."""

Waiting = TypeVar("Waiting")


class Worker(Protocol):
    """A connection with a long frame of the client or of the broker."""

    def go_on(self) -> bool:
        """Do one step; return whether more steps remain."""


class Reader(Protocol):
    """A connection that has read part of a long request, and is paused until its turn."""

    def resume(self, reasons: int) -> None:
        """Remove reasons to pause."""


class Turns(Generic[Waiting]):
    """The queue of connections that wait for a turn. Between two turns the loop serves its sockets.

    Args:
        loop: the event loop.
        take: does one step for a connection; returns whether more steps remain.
        per_turn: how many connections are served in one turn.
    """

    __slots__ = ("_is_due", "_loop", "_per_turn", "_take", "_waiting")

    def __init__(self, loop: AbstractEventLoop, take: Callable[[Waiting], bool], per_turn: int = 1) -> None:
        self._loop = loop
        self._take = take
        self._per_turn = per_turn
        self._waiting: dict[Waiting, None] = {}
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, one: Waiting) -> None:
        """Queue a connection; does nothing when it is queued already."""
        self._waiting[one] = None
        self._wake()

    def _wake(self) -> None:
        if not self._is_due and self._waiting:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        for one in list(islice(self._waiting, self._per_turn)):
            del self._waiting[one]
            if self._take(one):
                self._waiting[one] = None
        self._wake()


def long_work(loop: AbstractEventLoop) -> Turns[Worker]:
    """Return the queue for parsing long frames: one step of one connection in a turn."""
    return Turns(loop, lambda worker: worker.go_on())


def long_requests(loop: AbstractEventLoop) -> Turns[Reader]:
    """Return the queue for reading long requests: a few connections are read in a turn."""
    return Turns(loop, _read_on, READS_PER_TURN)


def _read_on(reader: Reader) -> bool:
    reader.resume(LONG_REQUEST)
    return False
