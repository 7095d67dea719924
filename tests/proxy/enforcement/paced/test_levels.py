"""The levels below a principal: client-ids and connections have equal shares, and a client gains nothing by more of them in turn."""

import random
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.paced import admission
from bench.paced.levels import LOADS, Clients, LevelLoad, ProductLine, shares_of
from bench.paced.loads import BOUND, BURST_NS
from bench.paced.simulated import run, shares
from proxy.enforcement.paced.levels import DEPARTED_MAX, ClientIdLevel
from proxy.enforcement.paced.member import Place
from quota.paced_schedule import MS_NS, SECOND_NS

SECONDS = 20
_Name = TypeVar("_Name")


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_client_ids_and_connections_get_their_parts(load: LevelLoad) -> None:
    """Client-ids of a principal, and connections of a client-id, get their max-min parts within 5 %."""
    assert shares_of(load, 40) == pytest.approx(list(load.parts), rel=0.05)


def test_without_the_levels_they_do_not() -> None:
    """Requests of a principal that pass first come first served give a client-id with one connection and small requests nearly nothing."""
    assert shares_of(LOADS[1], SECONDS, has_levels=False)[0] < 0.01


ENTRY = st.tuples(
    st.integers(0, 1), st.sampled_from("ab"), st.integers(1, 3), st.sampled_from([10_000, 40_000]), st.sampled_from([0, 0, 200])
)


@settings(max_examples=8, deadline=None)
@given(entries=st.lists(ENTRY, min_size=2, max_size=4))
def test_shares_are_max_min_on_all_levels(entries: list[tuple[int, str, int, int, int]]) -> None:
    """Whatever wants how much, each connection gets its max-min part of its client-id's, this of its principal's, this of the bound."""
    clients = [Clients(*entry) for entry in entries]
    if any(one.pace_ms for one in clients):  # see the next test
        clients = [one._replace(size=20_000) for one in clients]
    found = shares_of(LevelLoad("", clients, []), SECONDS)
    assert found == pytest.approx(max_min_parts(clients), rel=0.08, abs=0.01)


@pytest.mark.parametrize(("connections", "smaller"), [(1, 0.2), (4, 0.4875)])
def test_what_others_leave_goes_to_those_that_wait(connections: int, smaller: float) -> None:
    """Above the share of its client-id, a single connection with smaller requests gets less than one with larger ones; four get as much.

    What others leave passes when the schedules are idle, to a request that waits then. A single connection is absent after each answer.
    """
    greedy = [Clients(0, "a", connections, size) for size in (10_000, 40_000)]
    found = shares_of(LevelLoad("", [*greedy, Clients(0, "b", 1, 10_000, 200)], []), SECONDS)
    assert found == pytest.approx([smaller, 0.975 - smaller, 0.025], rel=0.05)


def max_min_parts(clients: Sequence[Clients]) -> list[float]:
    """Return the max-min part of each entry, over the bound."""
    tree: dict[int, dict[str, dict[int, float]]] = {}
    for number, one in enumerate(clients):
        wants = 1.0 if not one.pace_ms else one.connections * one.size / one.pace_ms * 1_000 / BOUND
        for at in range(one.connections):
            tree.setdefault(one.principal, {}).setdefault(one.client_id, {})[number * 10 + at] = (
                wants / one.connections if one.pace_ms else 1.0
            )
    parts = [0.0] * len(clients)
    principals = filled(1.0, {name: sum(sum(wants.values()) for wants in ids.values()) for name, ids in tree.items()})
    for principal, ids in tree.items():
        of_ids = filled(principals[principal], {name: sum(wants.values()) for name, wants in ids.items()})
        for name, wants in ids.items():
            for key, part in filled(of_ids[name], wants).items():
                parts[key // 10] += part
    return parts


def filled(total: float, wants: dict[_Name, float]) -> dict[_Name, float]:
    """Return what each gets of a total: equal shares, and no more than it wants."""
    parts: dict[_Name, float] = {}
    for left, (name, want) in zip(range(len(wants), 0, -1), sorted(wants.items(), key=lambda item: item[1]), strict=True):
        parts[name] = min(want, (total - sum(parts.values())) / left)
    return parts


class Renewing(ProductLine):
    """One connection ends after each answer, and goes on as a new one, under another client-id or the same."""

    def __init__(self, renewed: admission.Connection, *, renames: bool, reconnects: bool) -> None:
        super().__init__(BOUND, BURST_NS)
        self.renewed, self.renames, self.reconnects = renewed, renames, reconnects
        self.times = 0

    def answered(self, connection: admission.Connection, now_ns: int) -> None:
        if connection is self.renewed:
            self.times += 1
            if self.renames:
                connection.client = (0, f"renamed-{self.times}")
            if self.reconnects:
                self.ended(connection)


@pytest.mark.parametrize("size", [10_000, 100_000, 1_000_000])
@pytest.mark.parametrize(("renames", "reconnects"), [(True, False), (False, True), (True, True)])
def test_a_client_gains_nothing_by_renewing(size: int, renames: bool, reconnects: bool) -> None:
    """A client with a new connection or client-id for each request gets no more than its share, and the others lose nothing."""
    honest = "renamed-0" if not renames else "honest"
    connections = [admission.Connection(0, size, 0, (0, "renamed-0")), admission.Connection(1, 100_000, 0, (0, honest))]
    admitted = Renewing(connections[0], renames=renames, reconnects=reconnects)
    found = shares(run(admitted, connections, 40), BOUND, 40, 2)
    assert admitted.times > 10
    assert found[0] <= 0.5 * 1.05
    assert found[1] >= 0.5 * 0.95


@pytest.mark.parametrize("names", [1, 200])
def test_many_connections_of_a_principal_take_nothing_from_another(names: int) -> None:
    """A principal with 200 connections, of one client-id or each of another, gets half of the bound beside one with a single connection."""
    many = [admission.Connection(0, 16_000, 0, (0, f"c{number % names}")) for number in range(200)]
    found = shares(run(ProductLine(BOUND, BURST_NS), [*many, admission.Connection(1, 100_000, 0, (1, "a"))], SECONDS), BOUND, SECONDS, 2)
    assert found == pytest.approx([0.5, 0.5], rel=0.05)


class Line(ProductLine):
    """A line that a test moves on; its requests all count for one principal."""

    def __init__(self) -> None:
        super().__init__(BOUND, BURST_NS)
        self.now_ns = SECOND_NS
        self.passed: list[tuple[int, int]] = []

    def pass_due(self) -> None:
        """Let everything pass that may pass now."""
        while (chosen := self.next(self.now_ns)) is not None:
            self.passed.append((self.now_ns, chosen.size))

    def pass_all(self) -> int:
        """Let everything pass as soon as it may; return how many ns that takes."""
        began_ns = self.now_ns
        self.pass_due()
        while (wake_ns := self.wake_ns(self.now_ns)) is not None:
            self.now_ns = max(wake_ns, self.now_ns + MS_NS)
            self.pass_due()
        return self.now_ns - began_ns

    @property
    def level(self) -> ClientIdLevel | None:
        """The levels of the principal."""
        (principal,) = self.group.line.root.members.values()
        assert principal.level is None or isinstance(principal.level, ClientIdLevel)
        return principal.level


STEP = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(1_000, 300_000), st.integers(0, 400), st.booleans())


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, min_size=5, max_size=40))
def test_the_bound_holds_and_nothing_waits_for_ever(steps: list[tuple[int, int, int, int, bool]]) -> None:
    """Whatever connections come, rename themselves and end: a span passes bound x (L + burst) and one request at most, and all pass."""
    line, connections = Line(), dict[int, admission.Connection]()
    for at, name, size, pause_ms, ends in steps:
        one = connections.setdefault(at, admission.Connection(0, size))
        if one not in line.waiting.values():
            if ends and line.group.line.root.members:
                line.ended(one)
            one.size, one.client = size, (0, f"c{name}")
            line.join(one, line.now_ns)
        line.pass_due()
        check(line)
        line.now_ns += pause_ms * MS_NS
    left = sum(one.size for one in line.waiting.values())
    assert line.pass_all() <= left / BOUND * 1e9 + 3 * BURST_NS
    for first, (begin_ns, _) in enumerate(line.passed):
        before_last = 0
        for (_, size), (end_ns, _) in pairwise(line.passed[first:]):
            before_last += size
            assert before_last * SECOND_NS <= Fraction(BOUND) * (end_ns - begin_ns + BURST_NS)


def check(line: Line) -> None:
    """The request that goes next is the one of all that wait that may pass first, and of those the client-id that is furthest behind."""
    level = line.level
    if level is None or not line.waiting:
        return
    due_ns, place = level.soonest(line.now_ns)
    dues = {waiting: max(line.now_ns, line.group.line.due_ns(waiting.charged)) for waiting in line.waiting}
    assert due_ns <= max(line.now_ns, min(dues.values()))
    assert dues[place] <= max(due_ns, min(dues.values()))
    assert sum(client.waits for _, _, client in level.clients.waiting) == len(line.waiting)


def calls(waiting: int, names: int) -> int:
    """Return the number of calls that a check and the pass of one of so many waiting requests make."""
    line, counted = Line(), 0
    for number in range(waiting):
        line.join(admission.Connection(0, 16_000, 0, (0, f"c{number % names}")), line.now_ns)
    line.pass_due()

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    line.now_ns += 8 * MS_NS
    sys.setprofile(count)
    try:
        line.pass_due()
    finally:
        sys.setprofile(None)
    return counted


def test_a_check_does_not_look_at_all_that_wait() -> None:
    """A check, and the request that passes, make no more calls with 2,000 waiting connections than with 200."""
    for names in (1, 2_000):
        assert calls(2_000, names) <= calls(200, names) + 5


def test_a_principal_with_one_connection_has_no_levels() -> None:
    """Requests of one connection make no levels; those of a second one do, until they have been away for a second."""
    line, one, other = Line(), admission.Connection(0, 1_000_000), admission.Connection(1, 1_000_000)
    for _ in range(5):
        line.join(one, line.now_ns)
        line.pass_all()
        assert line.level is None
    line.join(one, line.now_ns)
    line.join(other, line.now_ns)
    assert line.level is not None
    line.pass_all()
    for _ in range(6):
        line.join(one, line.now_ns)
        line.pass_all()
    assert line.level is None


def test_what_is_kept_of_departed_connections_is_bounded() -> None:
    """Connections that come and go under new client-ids leave a bounded number of leads, and nothing else."""
    line, number = Line(), random.Random(1)
    stays = [admission.Connection(0, 100_000, 0, (0, name)) for name in "ab"]
    for one in stays:
        line.join(one, line.now_ns)
    for at in range(500):
        one = admission.Connection(0, number.randrange(1_000, 100_000), 0, (0, f"c{at}"))
        line.join(one, line.now_ns)
        line.pass_all()
        line.ended(one)
        for staying in stays:
            line.join(staying, line.now_ns)
    level = line.level
    assert level is not None
    assert len(level._by_name) == 2
    assert len(level.clients._departed) <= DEPARTED_MAX
    assert len(level.clients._claims) == 2


def test_places_are_those_of_their_connections() -> None:
    """A connection and its client-id count their waiting requests, and none is left when all have passed."""
    line = Line()
    for number in range(6):
        line.join(admission.Connection(0, 500_000, 0, (0, "ab"[number % 2])), line.now_ns)
    places: list[Place] = list(line.waiting)
    assert len({id(place.charged) for place in places}) == 6
    line.pass_all()
    assert len(line.group.line) == 0
    assert all(place.charged.waits == 0 for place in places)
