"""Request time under paced enforcement: the requests of a group wait for the schedule of handler time, whatever their API is.

The quota is 1 percent of one thread: 10 ms of handler time a second. A request that the broker answers after 10 ms is charged 250 us, the
cost of a small request that Sluice assumes at first, so 40 requests pass in a second. Until then it reserves a quarter more, 31 ms.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.time_group import PacedTimeGroup
from proxy.session.requests.timed_requests import RESERVED_OF_ESTIMATE
from proxy.session.throttle.time_admission import RESERVED_MS_MAX
from tests.proxy.session.paced.test_paced_metering import Notes
from tests.proxy.session.paced.test_paced_produce import answer
from tests.proxy.session.throttle.test_request_time import (
    ILLEGAL_SASL_STATE,
    empty_answer,
    empty_request,
    exchange_with_question,
    handshake,
    throttle_in,
)
from tests.support.fleet.fleet_proxies import FleetProxies
from tests.support.frames.kafka_frames import request_ids
from tests.support.frames.sasl_frames import handshake_answer
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import produce_of
from tests.support.memory.worker_proxies import WorkerProxies

PERCENT = 1.0
COST_NS = 250_000
"""What a request is charged."""
RESERVED_NS = COST_NS * RESERVED_OF_ESTIMATE
LIST_OFFSETS = (ApiKey.LIST_OFFSETS, 2)
HEARTBEAT = (ApiKey.HEARTBEAT, 1)
WORK_MS = 10


@pytest.fixture
def timed() -> Iterator[ProxyFixture]:
    """Yield a proxy with a burst of 130 ms, in which four requests pass at once."""
    with ProxyFixture(request=PERCENT, factories=PacedGroups(130)) as proxy:
        yield proxy


def group_of(proxy: ProxyFixture) -> PacedTimeGroup:
    """Return the group of request time."""
    (group,) = proxy.scope.request.groups()
    assert isinstance(group, PacedTimeGroup)
    return group


def use(proxy: ProxyFixture, peer: Peer, requests: int, *, first: int = 1, api: tuple[int, int] = LIST_OFFSETS) -> None:
    """Ask `requests` times in a row, one behind the other, each with an answer after 10 ms."""
    for number in range(first, first + requests):
        assert peer.sends(empty_request(number, *api)) == [number]
        proxy.wait(WORK_MS)
        peer.answers(empty_answer(number, *api))


def ahead(proxy: ProxyFixture, lead_ms: int) -> None:
    """Let the schedule be `lead_ms` ahead of the clock."""
    group = group_of(proxy)
    group.schedule.virtual_ns = (proxy.now_ms + lead_ms) * 1_000_000


def test_a_request_is_charged_at_its_response(timed: ProxyFixture) -> None:
    """A request reserves the estimated handler time when it passes, and the schedule is charged the handler time at its response."""
    peer = timed.connect()
    peer.sends(empty_request(1, *LIST_OFFSETS))
    group = group_of(timed)
    assert (group.pending, group.lead_ms(timed.now_ms)) == (pytest.approx(RESERVED_NS, rel=0.01), 0)
    timed.wait(WORK_MS)
    peer.answers(empty_answer(1, *LIST_OFFSETS))
    assert (group.pending, group.lead_ms(timed.now_ms)) == (0, 25)


def test_requests_of_many_connections_pass_no_more_than_the_burst_at_once(timed: ProxyFixture) -> None:
    """Of the first requests of many connections only those pass whose estimated handler time is within the burst."""
    peers = [timed.connect() for _ in range(16)]
    assert sum(len(peer.sends(empty_request(1, *LIST_OFFSETS))) for peer in peers) == 4


def test_a_request_waits_for_the_schedule(timed: ProxyFixture) -> None:
    """A request waits until the schedule and what is reserved are at most the burst ahead, and its response is not held."""
    peer = timed.connect()
    use(timed, peer, 1)
    ahead(timed, 598)
    assert peer.sends(empty_request(2, *LIST_OFFSETS)) == []
    timed.wait(499)
    assert peer.forwarded() == []
    timed.wait(1)
    assert peer.forwarded() == [2]
    assert peer.answers(empty_answer(2, *LIST_OFFSETS)) == [2]
    assert (group_of(timed).throttle_count, group_of(timed).throttle_ms_total) == (1, 500)


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
def test_a_long_wait_is_announced(timed: ProxyFixture, mode: Mode) -> None:
    """When the schedule lets nothing pass for longer than `delay_max_ms`, a response announces that time, and is not held."""
    timed.enforcement.mode = mode
    peer = timed.connect()
    assert peer.sends(empty_request(1, *LIST_OFFSETS)) == [1]
    ahead(timed, 9_114)
    timed.wait(WORK_MS)
    peer.broker.arrive(empty_answer(1, *LIST_OFFSETS))
    assert throttle_in(peer.client.take(), *LIST_OFFSETS) == 9_000


def test_pipelined_requests_pass_one_by_one(timed: ProxyFixture) -> None:
    """Requests that a client sends together reserve handler time one by one."""
    peer = timed.connect()
    assert peer.sends(*(empty_request(number, *LIST_OFFSETS) for number in range(1, 9))) == [1, 2, 3, 4]
    timed.wait(WORK_MS)
    peer.answers(*(empty_answer(number, *LIST_OFFSETS) for number in range(1, 5)))
    timed.wait(1_000)
    assert peer.forwarded() == [5, 6, 7, 8]


def test_a_heartbeat_waits_for_a_second_at_most(timed: ProxyFixture) -> None:
    """A request that keeps a group membership passes after a second, and the next one of its connection a second later."""
    peer = timed.connect()
    use(timed, peer, 1)
    ahead(timed, 600_000)
    assert peer.sends(*(empty_request(number, *HEARTBEAT) for number in (2, 3))) == []
    timed.wait(999)
    assert peer.forwarded() == []
    timed.wait(1)
    assert peer.forwarded() == [2]
    timed.wait(999)
    assert peer.forwarded() == []
    timed.wait(1)
    assert peer.forwarded() == [3]


def test_a_client_does_not_give_up(timed: ProxyFixture) -> None:
    """After 25 s one request of a group passes before its time."""
    first, second = timed.connect(), timed.connect()
    use(timed, first, 1)
    ahead(timed, 600_000)
    assert first.sends(empty_request(2, *LIST_OFFSETS)) == second.sends(empty_request(1, *LIST_OFFSETS)) == []
    timed.wait(24_999)
    assert first.forwarded() == second.forwarded() == []
    timed.wait(1)
    assert sorted(first.forwarded() + second.forwarded()) in ([1], [2])


@pytest.mark.parametrize("change", [lambda proxy: proxy.switch({"all": "off"}), lambda proxy: proxy.set_quota(request=float("inf"))])
def test_a_switch_or_a_removed_quota_lets_waiting_requests_pass(timed: ProxyFixture, change: Callable[[ProxyFixture], None]) -> None:
    """When a switch takes a client out of enforcement, or its quota is removed, its request passes, and no place is left in the line."""
    peer = timed.connect()
    use(timed, peer, 1)
    ahead(timed, 60_000)
    assert peer.sends(empty_request(2, *LIST_OFFSETS)) == []
    group = group_of(timed)
    assert len(group.line) == 1
    change(timed)
    timed.wait(1_000)
    assert peer.forwarded() == [2]
    assert len(group.line) == 0


@pytest.mark.parametrize("api", [(ApiKey.CREATE_TOPICS, 4), (ApiKey.DESCRIBE_CONFIGS, 1)], ids=lambda api: ApiKey(api[0]).name)
@pytest.mark.parametrize("answers_quotas", [False, True])
def test_requests_that_sluice_may_answer_or_change_wait_too(timed: ProxyFixture, api: tuple[int, int], answers_quotas: bool) -> None:
    """Requests that Sluice parses whole wait for handler time like any other, also as the first ones of a connection."""
    timed.settings.answers_quotas = answers_quotas
    use(timed, timed.connect(), 1)
    ahead(timed, 598)
    peer = timed.connect()
    peer.sends(empty_request(1, *api))
    assert peer.broker.written == b""
    assert len(group_of(timed).line) == 1


def test_a_login_that_the_broker_does_not_accept_waits_for_a_second(timed: ProxyFixture) -> None:
    """Handshakes at a broker that is not known to accept logins pass once in a second when the schedule lets nothing pass."""
    use(timed, timed.connect(), 1)
    ahead(timed, 600_000)
    peer = timed.connect()
    for number in (1, 2, 3):
        assert peer.sends(handshake("PLAIN", correlation_id=number)) == []
        timed.wait(999)
        assert peer.forwarded() == []
        timed.wait(1)
        assert peer.forwarded() == [number]
        peer.answers(handshake_answer(number, error_code=ILLEGAL_SASL_STATE))


def test_a_request_that_sluice_answers_reserves_nothing(timed: ProxyFixture) -> None:
    """A request that Sluice answers reserves no handler time; what it asks the broker is charged, and does not wait."""
    timed.settings.answers_quotas = True
    peer = timed.connect()
    exchange_with_question(timed, peer, 1)
    assert peer.delivered() == [1]
    group = group_of(timed)
    assert (group.pending, len(group.line)) == (0, 0)
    assert group.lead_ms(timed.now_ms) == 25


def test_exempt_requests_do_not_wait(timed: ProxyFixture) -> None:
    """A Produce with acks=0 is exempt from request time, and passes whatever the schedule of handler time is."""
    peer = timed.connect()
    use(timed, peer, 1)
    ahead(timed, 600_000)
    assert peer.sends(produce_of(100, 2, acks=0)) == [2]


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.DELAY])
def test_observe_and_a_drain_let_everything_pass(timed: ProxyFixture, mode: Mode) -> None:
    """In `observe`, and when Sluice drains, nothing waits for handler time."""
    timed.enforcement.mode = mode
    peer = timed.connect()
    use(timed, peer, 1)
    ahead(timed, 598)
    forwarded = peer.sends(empty_request(2, *LIST_OFFSETS))
    if mode is Mode.DELAY:
        assert forwarded == []
        peer.connection.drain()
        forwarded = peer.forwarded()
    assert forwarded == [2]
    assert group_of(timed).throttle_ms_total == (500 if mode is Mode.OBSERVE else 0)


@pytest.mark.parametrize(("bytes_ms", "time_ms", "waits_ms"), [(500, 98, 500), (0, 598, 500), (500, 698, 600)])
def test_a_produce_waits_for_the_longer_of_two_schedules(bytes_ms: int, time_ms: int, waits_ms: int) -> None:
    """A Produce waits until both schedules let it pass, and is charged in both once."""
    with ProxyFixture(produce=1_000.0, request=PERCENT, factories=PacedGroups(130)) as proxy:
        peer = proxy.connect()
        peer.sends(produce_of(100, 1))
        (by_bytes,) = proxy.scope.produce.groups()
        proxy.wait(WORK_MS)
        peer.answers(answer(1))
        proxy.wait(1_000)
        by_bytes.schedule.virtual_ns = (proxy.now_ms + 130 + bytes_ms) * 1_000_000  # type: ignore[attr-defined]
        ahead(proxy, time_ms)
        assert peer.sends(produce_of(100, 2)) == []
        proxy.wait(waits_ms - 1)
        assert peer.forwarded() == []
        proxy.wait(1)
        assert peer.forwarded() == [2]
        assert group_of(proxy).pending > 0
        assert by_bytes.lead_ms(proxy.now_ms) == 100 + max(0, 130 + bytes_ms - waits_ms)  # type: ignore[attr-defined]
        peer.answers(answer(2))
        assert group_of(proxy).pending == 0
        assert len(by_bytes.line) == len(group_of(proxy).line) == 0  # type: ignore[attr-defined]


def test_what_a_connection_has_reserved_ends_with_it(timed: ProxyFixture) -> None:
    """When a connection ends, its reservation and its place end, too, and the estimated time of its request is charged."""
    peers = [timed.connect() for _ in range(5)]
    for peer in peers:
        peer.sends(empty_request(1, *LIST_OFFSETS))
    group = group_of(timed)
    assert (group.pending, len(group.line)) == (pytest.approx(4 * RESERVED_NS, rel=0.01), 1)
    for peer in peers:
        peer.client.close()
    timed.wait(0)
    assert (group.pending, len(group.line), group.open_fetches) == (0, 0, 0)
    assert group.lead_ms(timed.now_ms) == 100


def test_a_request_in_flight_for_long_reserves_nothing(timed: ProxyFixture) -> None:
    """A request in flight for more than a second reserves nothing, so others pass. Its handler time is charged later, as unchecked."""
    timed.settings.meter = notes = Notes()
    peers = [timed.connect() for _ in range(6)]
    assert [peer.sends(empty_request(1, *LIST_OFFSETS)) for peer in peers[:5]] == [[1]] * 4 + [[]]
    group = group_of(timed)

    def lapse() -> None:
        for peer in peers:
            admission = peer.connection.session.fetch_admission.timed
            if admission is not None:
                admission.lapse(timed.now_ms)

    timed.wait(RESERVED_MS_MAX)
    lapse()
    assert peers[4].forwarded() == []
    timed.wait(1)
    lapse()
    timed.wait(0)
    assert peers[4].forwarded() == [1]
    assert (group.pending, group.open_fetches) == (pytest.approx(RESERVED_NS, rel=0.01), 1)
    lapse()
    peers[0].answers(empty_answer(1, *LIST_OFFSETS))
    peers[1].client.close()
    timed.wait(0)
    assert (group.pending, group.open_fetches) == (pytest.approx(RESERVED_NS, rel=0.01), 1)
    assert group.lead_ms(timed.now_ms) == 50
    assert {kind for kind, _, _ in notes.noted} == {"unchecked"}


def test_a_change_of_pacing_keeps_what_was_used(timed: ProxyFixture) -> None:
    """At run time a waiting request passes when its group gets a window, whose sensor has measured what passed, and waits again after."""
    peer = timed.connect()
    use(timed, peer, 1)
    ahead(timed, 5_000)
    assert peer.sends(empty_request(2, *LIST_OFFSETS)) == []
    timed.pace({"all": "window"})
    assert peer.forwarded() == [2]
    (group,) = timed.scope.request.groups()
    assert not group.is_paced
    assert group.recorded_total == pytest.approx(COST_NS * 1e-7, rel=0.02)
    timed.pace({"all": "paced"})
    timed.wait(WORK_MS)
    peer.answers(empty_answer(2, *LIST_OFFSETS))
    assert group_of(timed).recorded_total == pytest.approx(2 * COST_NS * 1e-7, rel=0.03)


class Asker:
    """A connection that asks again after each answer, which comes after 10 ms.

    Attributes:
        answers: number of answers.
    """

    def __init__(self, proxy: ProxyFixture, peer: Peer) -> None:
        self._proxy, self._peer = proxy, peer
        self.answers = 0
        peer.broker.write = peer.connection.client.write_peer = self._goes  # type: ignore[method-assign]

    def ask(self) -> None:
        """Send the next request."""
        self._peer.client.arrive(empty_request(self.answers + 1, *LIST_OFFSETS))

    def _goes(self, _data: bytes | memoryview) -> None:
        self._proxy.loop.call_later(WORK_MS / 1_000, self._answer)

    def _answer(self) -> None:
        self.answers += 1
        self._peer.broker.arrive(empty_answer(self.answers, *LIST_OFFSETS))
        self._proxy.loop.call_later(0, self.ask)


def long_runs(its: WorkerProxies | FleetProxies, proxies: Sequence[ProxyFixture], askers: Sequence[Asker]) -> list[float]:
    """Let connections ask for 20 s; return the handler time from second 10 on over the bound: of all proxies, as each proxy knows it."""
    its.wait(2_000)
    for asker in askers:
        asker.ask()
    totals = []
    for _ in range(20):
        its.wait(1_000)
        groups = [group_of(proxy) for proxy in proxies]
        totals.append([group.recorded_total for group in groups])
    assert all(group.measures_all for group in groups)
    return [(last - tenth) / 10 / PERCENT for tenth, last in zip(totals[9], totals[19], strict=True)]


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_pass_the_bound_of_request_time_together(workers: int) -> None:
    """Greedy connections at several workers get the bound, as each worker knows it."""
    with WorkerProxies(workers, burst_ms=1_000, request=PERCENT) as its:
        askers = [Asker(proxy, proxy.connect()) for proxy in its.proxies for _ in range(4)]
        assert long_runs(its, its.proxies, askers) == pytest.approx([1.0] * workers, abs=0.03)


def test_members_have_equal_handler_time_over_workers() -> None:
    """A member with one connection at one worker gets as much as one with 15 connections at the other one."""
    with WorkerProxies(2, burst_ms=1_000, request=PERCENT) as its:
        proxies = [its.proxies[min(at, 1)] for at in range(16)]
        askers = [Asker(proxy, proxy.connect(host=f"10.0.0.{min(at, 1)}")) for at, proxy in enumerate(proxies)]
        assert long_runs(its, its.proxies, askers) == pytest.approx([1.0] * 2, abs=0.03)
        here, there = (group_of(proxy).own_total for proxy in its.proxies)
        assert here == pytest.approx(there, rel=0.05)


def test_members_of_a_fleet_pass_the_bound_of_request_time_together() -> None:
    """Greedy connections at two proxies of a fleet get the bound within 3 %, and equally much at each."""
    with FleetProxies(2, burst_ms=1_000, request=PERCENT) as its:
        proxies = [its.members[at % 2].proxy for at in range(8)]
        askers = [Asker(proxy, proxy.connect()) for proxy in proxies]
        assert long_runs(its, proxies[:2], askers) == pytest.approx([1.0] * 2, abs=0.03)
        answers = [asker.answers for asker in askers]
        assert sum(answers[::2]) == pytest.approx(sum(answers[1::2]), rel=0.1)


def test_what_a_request_at_another_worker_has_reserved_is_not_free() -> None:
    """Of the first requests at two workers only those pass at once whose estimates are within the burst together."""
    with WorkerProxies(2, burst_ms=130, request=PERCENT) as its:
        passed = [bool(its.connect().sends(empty_request(1, *LIST_OFFSETS))) for _ in range(16)]
    assert 3 <= sum(passed) <= 4


def test_a_change_of_pacing_keeps_what_another_worker_has_reserved() -> None:
    """A worker whose group gets a window and a schedule again knows what a request at another worker has reserved all the time."""
    with WorkerProxies(2, burst_ms=130, request=PERCENT) as its:
        here, there = its.proxies
        for proxy in its.proxies:
            use(proxy, proxy.connect(), 1)
        there.connect().sends(empty_request(1, *LIST_OFFSETS))
        reserved_ns = group_of(there).pending
        group_of(here).refresh(its.now_ms)
        assert group_of(here).pending == reserved_ns > 0
        here.pace({"all": "window"})
        (window,) = here.scope.request.groups()
        assert window.pending_at(its.now_ms) == pytest.approx(reserved_ns * 1e-7, rel=0.5)
        here.pace({"all": "paced"})
        assert group_of(here).pending == reserved_ns
        its.wait(1_000)
        assert group_of(here).recorded_total == pytest.approx(group_of(there).recorded_total)


class TimeNotes(Notes):
    """A meter that lists excused requests, too."""

    __slots__ = ()

    def excused(self, group: object, value: int, waited_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        self.noted.append(("excused", value, waited_ms))


def test_a_request_is_metered_at_its_response(timed: ProxyFixture) -> None:
    """A request is metered with its wait; one that passed to keep a membership as excused; one before its time as unchecked."""
    meter = timed.settings.meter = TimeNotes()
    peer = timed.connect()
    use(timed, peer, 1)
    ahead(timed, 598)
    for number, api, wait_ms in ((2, LIST_OFFSETS, 500), (3, HEARTBEAT, 1_000), (4, LIST_OFFSETS, 25_000)):
        if number > 2:
            ahead(timed, 600_000)
        peer.sends(empty_request(number, *api))
        timed.wait(wait_ms)
        assert peer.forwarded() == [number]
        timed.wait(WORK_MS)
        peer.answers(empty_answer(number, *api))
    assert [(kind, wait_ms) for kind, _, wait_ms in meter.noted] == [("checked", 0), ("checked", 500), ("excused", 1_000), ("unchecked", 0)]
    assert [value for _, value, _ in meter.noted] == pytest.approx([COST_NS] * 4, rel=0.05)


LOADS = st.lists(st.integers(1, 6), min_size=1, max_size=6)
"""Requests that each connection sends together."""


@settings(max_examples=20, deadline=None)
@given(loads=LOADS, burst_ms=st.sampled_from([25, 60, 200]), works_ms=st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_any_span_is_charged_no_more_than_bound_and_burst(loads: list[int], burst_ms: int, works_ms: list[int]) -> None:
    """In any span L the handler time of the responses is at most bound x (L + burst), one request, and what exceeds the estimates."""
    charged: list[tuple[int, int, int]] = []
    with ProxyFixture(request=PERCENT, factories=PacedGroups(burst_ms)) as proxy:
        meter = proxy.settings.meter = TimeNotes()

        def forward(peer: Peer) -> Callable[[bytes | memoryview], None]:
            free_ms = 0

            def answer_later(data: bytes | memoryview) -> None:
                nonlocal free_ms
                for number in request_ids(bytes(data)):
                    free_ms = max(free_ms, proxy.now_ms) + works_ms[number % len(works_ms)]
                    proxy.loop.call_later((free_ms - proxy.now_ms) / 1_000, respond, number)

            def respond(number: int) -> None:
                del meter.noted[:]
                peer.broker.arrive(empty_answer(number, *LIST_OFFSETS))
                unchecked = sum(value for kind, value, _ in meter.noted if kind == "unchecked")
                charged.append((proxy.now_ms, sum(value for _, value, _ in meter.noted), unchecked))

            return answer_later

        for requests in loads:
            peer = proxy.connect()
            peer.broker.write = peer.connection.client.write_peer = forward(peer)  # type: ignore[method-assign]
            peer.client.arrive(b"".join(empty_request(number, *LIST_OFFSETS) for number in range(requests)))
        proxy.wait(20_000)
    assert len(charged) == sum(loads)
    for at, (begin_ms, _, _) in enumerate(charged):
        total = beyond = 0
        for end_ms, value, unchecked in charged[at:]:
            assert (total - beyond) * 100 <= (end_ms - begin_ms + max(burst_ms, 32)) * 1_000_000
            total, beyond = total + value, beyond + unchecked
