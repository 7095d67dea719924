"""Set when the connection needs `settle` after a read or a write."""

from __future__ import annotations


class Attention:
    """Whether a connection has anything to settle: a verdict, a stop, a hold, a reply of our own, its end.

    Code that decides something of that kind sets `needs_settle`; `Connection.settle` carries it out and clears it.
    """

    __slots__ = ("needs_settle",)

    def __init__(self) -> None:
        self.needs_settle = False
