"""Counts the items that walks read in each callback of the event loop."""

from types import TracebackType
from typing import Self

import pytest

from protocol.steps import Pace
from proxy.net.connection import Connection
from proxy.session.requests.request_side import RequestSide
from proxy.session.responses.response_side import ResponseSide


class StepWatch:
    """Counts, while it is open, the items of each event-loop callback: of reads and of turns of long work.

    Attributes:
        calls: the items of each call that read any.
        turns: the calls of long work.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.turns = 0
        self._now = 0
        self._patch = pytest.MonkeyPatch()

    @property
    def most(self) -> int:
        """The largest number of items in one call."""
        return max(self.calls, default=0)

    @property
    def items(self) -> int:
        """The number of items in all calls."""
        return sum(self.calls)

    def __enter__(self) -> Self:
        due, go_on = Pace.due, Connection.go_on

        def counted(pace: Pace, items: int = 1) -> bool:
            self._now += items
            return due(pace, items)

        def turn(connection: Connection) -> bool:
            self.turns += 1
            self._now = 0
            more = go_on(connection)
            self._ended()
            return more

        self._patch.setattr(Pace, "due", counted)
        self._patch.setattr(Connection, "go_on", turn)
        for side in (RequestSide, ResponseSide):
            self._watch_scan(side)
        return self

    def _watch_scan(self, side: type[RequestSide] | type[ResponseSide]) -> None:
        scan = side.scan

        def scanned(one: object, data: bytes, now_ms: int, now_ns: int) -> object:
            self._now = 0
            try:
                return scan(one, data, now_ms, now_ns)  # type: ignore[arg-type]
            finally:
                self._ended()

        self._patch.setattr(side, "scan", scanned)

    def _ended(self) -> None:
        if self._now:
            self.calls.append(self._now)
            self._now = 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._patch.undo()
