"""What a bus does: every member receives every message, its own included, in the order of one log.

The log gives each message a position and a time. Both increase, times as far as the clock of the bus does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class BusError(Exception):
    """The bus cannot be used now; the text has the problem, and a remedy where there is one, but not the name of the bus."""


class Sent(NamedTuple):
    """A message that the bus has accepted.

    Attributes:
        position: its position in the log.
        time_ms: when the bus accepted it, by the clock of the bus.
    """

    position: int
    time_ms: int


class Received(NamedTuple):
    """A message that was read from the bus.

    Attributes:
        position: its position in the log; positions increase.
        time_ms: when the bus accepted it, by the clock of the bus.
        data: the message.
    """

    position: int
    time_ms: int
    data: bytes


class Bus(Protocol):
    """One member's connection to the bus. After `stop` it can be started again."""

    name: str
    """Name of the bus in messages, such as `topic:__sluice_fleet`."""

    async def start(self) -> None:
        """Connect, and check that the bus can be used. Messages from now on are received, unless `read_from` names another time.

        Raises:
            BusError: it cannot; nothing needs to be stopped.
        """

    async def send(self, data: bytes) -> Sent:
        """Send one message, and wait until the bus has accepted it. After a lost response the log may contain it twice.

        Raises:
            BusError: the bus did not accept it, or the outcome is unknown; the bus may accept it later.
        """

    async def read_from(self, time_ms: int) -> int:
        """Let `receive` continue at the first message of this time or later, by the clock of the bus; return the position.

        Without such a message it continues at the end of the log. A loss that `receive` has reported is settled.

        Raises:
            BusError: the bus cannot be read.
        """

    async def receive(self) -> Sequence[Received]:
        """Return the next messages, at least one; wait until there are some. A call that is cancelled loses none.

        Raises:
            BusError: the bus cannot be read, or messages were lost.
        """

    async def stop(self) -> None:
        """Disconnect, within a few seconds in any case; a bus that is not started stays so."""
