"""What fetches of paced groups have reserved."""

from __future__ import annotations

from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.member import Member
from quota.manager import Renewals


class Reservation:
    """How the schedule of a paced group let a fetch pass.

    Attributes:
        member: what its cost was charged to.
        fetcher: the member of the group that it is an open fetch of.
        is_on_time: whether it passed by the schedule; False: before its time.
        waited_ms: how long it waited.
    """

    __slots__ = ("fetcher", "is_on_time", "member", "waited_ms")

    def __init__(self, member: Member, fetcher: Member, is_on_time: bool, waited_ms: int) -> None:
        self.member = member
        self.fetcher = fetcher
        self.is_on_time = is_on_time
        self.waited_ms = waited_ms


class UsualReservation(Reservation):
    """The reservation of all fetches of a client that request as much and pass at once: see `PacedGroup`.

    Attributes:
        group: the group that it is of.
        renewals, renewed: of the quota scope of the client, and their number for as long as its fetches count for the group.
        reserved: its bytes, as a double.
        size_bytes, amount: size of the last response, also as a double; -1: not known.
        cost_ns: cost of a response of that size.
        back_ns: what a fetch that reserved more than it costs gets back.
    """

    __slots__ = ("amount", "back_ns", "cost_ns", "group", "renewals", "renewed", "reserved", "size_bytes")

    def __init__(self, group: PacedGroup, member: Member, reserved: int, renewals: Renewals) -> None:
        super().__init__(member, member, True, 0)
        self.group = group
        self.renewals, self.renewed = renewals, renewals.number
        self.reserved = float(reserved)
        self.size_bytes = -1
        self.amount = 0.0
        self.cost_ns = self.back_ns = 0

    def learn(self, size_bytes: int) -> None:
        """Compute the costs of the responses that follow, of `size_bytes`."""
        group = self.group
        self.size_bytes, self.amount = size_bytes, float(size_bytes)
        self.cost_ns = group.cost_ns(size_bytes)
        self.back_ns = group.cost_ns(int(self.reserved)) - self.cost_ns
