"""The one question that the hot path asks about everything rare."""

from __future__ import annotations


class Attention:
    """Whether a connection has anything to settle: a verdict, a stop, a hold, a reply of our own, its end.

    Whoever decides something of that kind sets `wanted`; `Connection.settle` carries it out and clears it.
    """

    __slots__ = ("wanted",)

    def __init__(self) -> None:
        self.wanted = False
