"""The levels below principals: the product's own line of waiting requests, on virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bench.paced import admission
from bench.paced.loads import BOUND, BURST_NS
from bench.paced.simulated import run, shares
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.member import Connection, Place
from quota.paced_schedule import MS_NS, ms_after


class ProductLine:
    """Admits requests as the product does in one process.

    Args:
        has_levels: whether client-ids and connections are members, and not only principals.
    """

    def __init__(self, bound: float, burst_ns: int, *, has_levels: bool = True) -> None:
        self.group = PacedGroup({}, bound, burst_ns=burst_ns)
        self.has_levels = has_levels
        self.connections: dict[admission.Connection, Connection] = {}
        self.waiting: dict[Place, admission.Connection] = {}

    def join(self, connection: admission.Connection, now_ns: int) -> None:
        """A request of the connection waits from now on."""
        line, now_ms = self.group.line, now_ns // MS_NS
        known = self.connections.setdefault(connection, Connection()) if self.has_levels else None
        if known is not None:
            known.client_id = connection.client[1]
        member = line.member(((connection.client[0], None),), now_ms * MS_NS)
        self.waiting[line.join(member, now_ms, _nothing, now_ms, 0, known)] = connection

    def next(self, now_ns: int) -> admission.Connection | None:
        """Return the connection whose request passes now; None: none passes."""
        due = self._due(now_ns)
        if due is None or due[0] > now_ns:
            return None
        now_ms, place = now_ns // MS_NS, due[1]
        connection = self.waiting.pop(place)
        self.group.record(connection.size, now_ms)
        self.group.charge_members(place.charged, connection.size, now_ms * MS_NS)
        self.group.line.leave(place)
        return connection

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when the schedules let the next request pass."""
        due = self._due(now_ns)
        return None if due is None else ms_after(due[0]) * MS_NS

    def answered(self, connection: admission.Connection, now_ns: int) -> None:
        """Do nothing: the request is charged."""

    def ended(self, connection: admission.Connection) -> None:
        """A connection has ended that does not wait."""
        known = self.connections.pop(connection, None)
        if known is not None:
            known.end()

    def _due(self, now_ns: int) -> tuple[int, Place] | None:
        if not self.waiting:
            return None
        now_ns = now_ns // MS_NS * MS_NS
        line, group = self.group.line, self.group
        _, place = line.root.soonest(now_ns, group.schedule.burst_ns)
        return max(group.due_ns(now_ns), line.due_ns(place.charged)), place


class Clients(NamedTuple):
    """Connections with one client-id of one principal; `pace_ms` 0: each always has more to send."""

    principal: int
    client_id: str
    connections: int
    size: int
    pace_ms: int = 0


class LevelLoad(NamedTuple):
    """Connections of several client-ids, and the max-min part of each entry, over the bound."""

    name: str
    clients: Sequence[Clients]
    parts: Sequence[float]


LOADS: Final = (
    LevelLoad("two client-ids: 1 connection; 16", [Clients(0, "a", 1, 100_000), Clients(0, "b", 16, 100_000)], [1 / 2, 1 / 2]),
    LevelLoad("two client-ids: 1 of 10 kB; 16 of 1 MB", [Clients(0, "a", 1, 10_000), Clients(0, "b", 16, 1_000_000)], [1 / 2, 1 / 2]),
    LevelLoad("connections of one client-id: 10 kB; 1 MB", [Clients(0, "a", 1, 10_000), Clients(0, "a", 1, 1_000_000)], [1 / 2, 1 / 2]),
    LevelLoad(
        "connections of one client-id: 1 of 10 kB; 4 of 100 kB; 2 of 400 kB",
        [Clients(0, "a", 1, 10_000), Clients(0, "a", 4, 100_000), Clients(0, "a", 2, 400_000)],
        [1 / 7, 4 / 7, 2 / 7],
    ),
    LevelLoad(
        "client-id a that wants 0.1; b with 1 of 10 kB; b with 4 of 100 kB; another principal with 16 of 100 kB",
        [Clients(0, "a", 1, 10_000, 50), Clients(0, "b", 1, 10_000), Clients(0, "b", 4, 100_000), Clients(1, "a", 16, 100_000)],
        [0.1, 0.08, 0.32, 0.5],
    ),
)


def level_shares(seconds: int) -> Iterator[tuple[LevelLoad, list[float], list[float]]]:
    """Yield for each load the shares when requests of a principal pass first come first served, and with the levels."""
    for load in LOADS:
        yield load, shares_of(load, seconds, has_levels=False), shares_of(load, seconds)


def shares_of(load: LevelLoad, seconds: int, *, has_levels: bool = True) -> list[float]:
    """Return the share of each entry of a load, over the bound."""
    connections = [
        admission.Connection(number, one.size, one.pace_ms * MS_NS, (one.principal, one.client_id))
        for number, one in enumerate(load.clients)
        for _ in range(one.connections)
    ]
    passed = run(ProductLine(BOUND, BURST_NS, has_levels=has_levels), connections, seconds)
    return shares(passed, BOUND, seconds, len(load.clients))


def _nothing() -> None:
    """Nobody waits for a notification: the simulation asks."""
