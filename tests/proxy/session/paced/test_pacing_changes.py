"""Groups whose pacing changes at run time, without a disconnect. The bound is 1,000 bytes per second, the burst one second."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.group import PacedGroup
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from tests.support.frames.kafka_frames import fetch, produced, throttle_ms
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.verdicts import BOUND, FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_for, produce_of

ETL = {"entity:client-id=etl": "paced"}
"""The quota of client-id etl is paced, and nothing else."""


@pytest.fixture
def proxy() -> Iterator[ProxyFixture]:
    """Yield a proxy whose groups have windows at first."""
    with ProxyFixture(produce=BOUND, fetch=BOUND, factories=PacedGroups(1_000, paces_others=False)) as running:
        yield running


def answer(peer: Peer, number: int) -> bytes:
    """Answer a Produce; return what the client receives."""
    peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
    return peer.client.take()


def schedule_lead_ms(proxy: ProxyFixture) -> int:
    """Return the lead of the schedule of produced bytes."""
    (group,) = proxy.scope.produce.groups()
    assert isinstance(group, PacedGroup)
    return group.lead_ms(proxy.now_ms)


def test_the_lead_begins_as_the_throttle_time_of_the_window(proxy: ProxyFixture) -> None:
    """A change to a schedule forgets no usage: where the window throttles for 3 s, the next request waits for 3 s less the burst."""
    first, second = proxy.connect(), proxy.connect()
    assert first.sends(produce_for(3_000, 1)) == [1]
    assert answer(first, 1) == b""
    proxy.pace(ETL)
    assert schedule_lead_ms(proxy) == 3_000
    assert second.sends(produce_of(100, 2)) == []
    proxy.wait(1_999)
    assert second.forwarded() == []
    proxy.wait(1)
    assert second.forwarded() == [2]
    proxy.wait(1_000)  # the connection that was throttled keeps its time
    assert throttle_ms(first.client.take(), ApiKey.PRODUCE, PRODUCE_VERSION) == 0


def test_the_window_has_recorded_what_a_schedule_let_pass(proxy: ProxyFixture) -> None:
    """A change to the window forgets no usage: what passed by the schedule counts, and what waits is forwarded at once."""
    proxy.pace(ETL)
    peer = proxy.connect()
    assert peer.sends(*(produce_of(2_000, number) for number in (1, 2))) == [1]
    assert answer(peer, 1) != b""
    proxy.pace({})
    assert peer.forwarded() == [2]
    assert answer(peer, 2) != b""
    assert peer.sends(produce_of(8_000, 3)) == [3]
    assert answer(peer, 3) == b""
    proxy.wait(2_000)
    assert throttle_ms(peer.client.take(), ApiKey.PRODUCE, PRODUCE_VERSION) == 0


def test_a_fetch_in_flight_counts_for_the_group_that_continues(proxy: ProxyFixture) -> None:
    """Fetches in flight at a change are pending in the new group, and their answers are recorded there once."""
    peer = proxy.connect()
    assert peer.sends(fetch(1, version=FETCH_VERSION)) == [1]
    (window,) = proxy.scope.fetch.groups()
    expected = window.pending
    proxy.pace(ETL)
    (paced,) = proxy.scope.fetch.groups()
    assert (window.pending, paced.pending) == (0, expected)
    peer.answers(fetched_of(700, 1))
    assert (paced.pending, paced.recorded_total) == (0, 700)
    proxy.wait(200)
    assert peer.sends(fetch(2, version=FETCH_VERSION)) == [2]
    assert paced.pending == 500
    proxy.pace({"all": "window"})
    (again,) = proxy.scope.fetch.groups()
    assert (paced.pending, again.pending) == (0, 500)
    peer.answers(fetched_of(300, 2))
    assert (again.pending, again.recorded_total) == (0, 1_000)


def test_a_waiting_fetch_is_checked_again(proxy: ProxyFixture) -> None:
    """A fetch that waits for the window passes when the schedule lets it, which is not later."""
    peer = proxy.connect()
    assert peer.asks(fetch(1, version=FETCH_VERSION), fetched_of(12_000, 1)) == b""
    proxy.wait(2_000)
    peer.client.take()
    other = proxy.connect()
    assert other.sends(fetch(2, version=FETCH_VERSION)) == []
    proxy.pace(ETL)  # its lead begins at 2,000 ms, and the fetch reserves 500 bytes
    proxy.wait(1_499)
    assert other.forwarded() == []
    proxy.wait(1)
    assert other.forwarded() == [2]


def test_a_produce_in_flight_is_charged_at_its_answer(proxy: ProxyFixture) -> None:
    """A Produce that was forwarded by the window is charged to the schedule when it is answered, and one that a schedule charged is not."""
    peer = proxy.connect()
    assert peer.sends(produce_of(2_500, 1)) == [1]
    proxy.pace(ETL)
    answer(peer, 1)
    assert schedule_lead_ms(proxy) == 2_500
    proxy.wait(1_500)
    assert peer.sends(produce_of(100, 2)) == [2]
    proxy.pace({})
    answer(peer, 2)
    (group,) = proxy.scope.produce.groups()
    assert group.recorded_total == 2_600


def test_a_target_matches_the_quota_that_applies(proxy: ProxyFixture) -> None:
    """An entity's pacing applies to the groups with that entity's quota, and ends when another quota applies to them."""
    proxy.set_quota(produce=BOUND, client_id="<default>")
    proxy.pace({"entity:client-id=<default>": "paced"})
    peer = proxy.connect()
    for number, client_id in enumerate(("etl", "other"), 1):
        peer.sends(produce_of(100, number, client_id=client_id))
    assert {group.tags["client-id"]: group.is_paced for group in proxy.scope.produce.groups()} == {"etl": False, "other": True}


def test_a_declared_group_is_paced_with_all_groups_below_it(proxy: ProxyFixture) -> None:
    """The pacing of a topmost declared group applies to its children, and a chain that changes keeps its pending usage and its sums."""
    bounds = {ClientQuotaType.FETCH: 1_000.0}
    proxy.declare(
        DeclaredGroup("shop", None, {ClientQuotaType.FETCH: 2_000.0}),
        DeclaredGroup("etl", Conditions(None, (Pattern("etl"),), None, None), bounds, "shop"),
    )
    peer = proxy.connect()
    assert peer.sends(fetch(1, version=FETCH_VERSION)) == [1]
    pending = {name: group.pending for name, group in groups_of(proxy).items()}
    proxy.pace({"group:shop": "paced"})
    groups = groups_of(proxy)
    assert all(isinstance(group, PacedGroup) for group in groups.values())
    assert groups["etl"].parent is groups["shop"]
    assert {name: group.pending for name, group in groups.items()} == pending
    peer.answers(fetched_of(700, 1))
    assert [(group.pending, group.recorded_total) for group in groups.values()] == [(0, 700), (0, 700)]


def groups_of(proxy: ProxyFixture) -> dict[str, PacedGroup]:
    """Return the declared groups of fetched bytes by name."""
    return {group.tags["declared-group"]: group for group in proxy.scope.fetch.groups()}  # type: ignore[misc]  # a window has these, too


def test_the_files_have_the_lead_with_which_a_schedule_begins(tmp_path: Path) -> None:
    """The last decision of the window has no usage and the throttle time that the schedule begins with."""
    with MeteredFixture(tmp_path, produce=BOUND, factories=PacedGroups(1_000, paces_others=False)) as proxy:
        first, second = proxy.connect(), proxy.connect()
        first.sends(produce_for(3_000, 1))
        answer(first, 1)
        proxy.wait(500)
        proxy.pace(ETL)
        proxy.wait(2_000)
        assert second.sends(produce_of(100, 2)) == [2]
        assert proxy.written().kinds() == {}
    of_window, of_schedule = proxy.rows("samples")
    assert (of_window["val"], of_window["thr_ms"], "lead_ns" in of_window) == ([13_000, 0], [3_000, 2_500], False)
    assert of_schedule["lead_ns"] == 500_000_000
    assert [row["pacing"] for row in proxy.rows("states")][-1] == '[{"pacing":"window"},{"pacing":"paced","client-id":["etl"]}]'


STEPS = st.one_of(
    st.tuples(st.just("produce"), st.integers(100, 6_000)),
    st.tuples(st.just("fetch"), st.integers(100, 6_000)),
    st.tuples(st.just("answer"), st.integers(100, 3_000)),
    st.tuples(st.just("wait"), st.integers(1, 4_000)),
    st.tuples(st.just("pace"), st.booleans()),
)


class Traffic:
    """A producer and a consumer of client-id etl, whose requests the broker answers when it is told to."""

    def __init__(self, proxy: ProxyFixture) -> None:
        self.proxy = proxy
        self.producer, self.consumer = proxy.connect(), proxy.connect()
        self.number = 1
        other = proxy.connect()  # uses more than a window holds
        other.sends(produce_of(14_000, 1))
        other.broker.arrive(produced(1, version=PRODUCE_VERSION))
        self.produces: list[int] = []
        self.fetches: list[int] = []

    def act(self, what: str, value: int) -> None:
        """Carry out one step."""
        self.number += 1
        if what == "produce" and self.producer.client.reading:
            self.produces += self.producer.sends(produce_of(value, self.number))
        elif what == "fetch" and self.consumer.client.reading:
            self.fetches += self.consumer.sends(fetch(self.number, version=FETCH_VERSION))
        elif what == "wait":
            self.proxy.wait(value)
        elif what == "pace":
            self.proxy.pace({"entity:client-id=etl": "paced" if value else "window"})
        self.produces += self.producer.forwarded()
        self.fetches += self.consumer.forwarded()
        if what == "answer":
            self.answer(value)

    def answer(self, size: int) -> None:
        """Answer what is in flight, each fetch with `size` bytes."""
        for number in self.produces:
            self.producer.broker.arrive(produced(number, version=PRODUCE_VERSION))
        for number in self.fetches:
            self.consumer.broker.arrive(fetched_of(size, number))
        self.produces, self.fetches = [], []


@settings(max_examples=12, deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=40), begins_paced=st.booleans(), level=st.sampled_from(["packed", "trace"]))
def test_the_files_prove_every_decision(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], level: str, *, begins_paced: bool
) -> None:
    """Whatever changes when, the validator recomputes each window and each schedule of the run exactly."""
    directory = tmp_path_factory.mktemp("run")
    factories = PacedGroups(1_000, paces_others=begins_paced)
    with MeteredFixture(directory, produce=BOUND, fetch=BOUND, factories=factories, level=level) as proxy:
        traffic = Traffic(proxy)
        for what, value in [*steps, ("wait", 60_000), ("answer", 100)]:
            traffic.act(what, value)
        verdict = proxy.written()
    assert verdict.kinds() == {}
    assert verdict.holds
