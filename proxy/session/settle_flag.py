"""Set when the connection needs `settle` after a read or a write."""

from __future__ import annotations


class SettleFlag:
    """Whether `settle` has work for a connection: a verdict, a stop, a hold, a reply of Sluice's own, or its end.

    Code that makes such a decision sets `needs_settle`; `Connection.settle` applies it and clears the flag.
    """

    __slots__ = ("needs_settle",)

    def __init__(self) -> None:
        self.needs_settle = False
