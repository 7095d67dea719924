"""Produce under paced enforcement: admitted by the schedule of its group before it is forwarded. The bound is 1,000 bytes per second."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.group import PacedGroup
from proxy.session.request_context import RequestContext
from proxy.session.requests.paced_requests import PacedRequests
from tests.support.frames.kafka_frames import produced, request_ids, throttle_ms
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import BOUND, PRODUCE_VERSION, produce_of


def group_of(proxy: ProxyFixture) -> PacedGroup:
    """Return the group of produced bytes."""
    (group,) = proxy.scope.produce.groups()
    assert isinstance(group, PacedGroup)
    return group


def answer(number: int) -> bytes:
    """Return the answer to a Produce."""
    return produced(number, version=PRODUCE_VERSION)


def use_burst(peer: Peer) -> None:
    """Use the burst, and let the schedule be half a second ahead of it."""
    peer.asks(produce_of(1_500, 1), answer(1))


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
def test_it_waits_until_the_schedule_is_a_burst_ahead(paced: ProxyFixture, mode: Mode) -> None:
    """A Produce waits until the schedule is at most the burst ahead of the clock, and its answer is not held."""
    paced.enforcement.mode = mode
    peer = paced.connect()
    use_burst(peer)
    assert peer.sends(produce_of(100, 2)) == []
    assert not peer.client.reading
    paced.wait(499)
    assert peer.forwarded() == []
    paced.wait(1)
    assert peer.forwarded() == [2]
    assert peer.answers(answer(2)) == [2]


def test_requests_of_one_connection_wait_one_by_one(paced: ProxyFixture) -> None:
    """Requests that a client sends together are admitted one by one, and pass at the bound."""
    peer = paced.connect()
    assert peer.sends(*(produce_of(500, number) for number in range(1, 7))) == [1, 2, 3]
    paced.wait(499)
    assert peer.forwarded() == []
    paced.wait(1)
    assert peer.forwarded() == [4]
    paced.wait(1_000)
    assert peer.forwarded() == [5, 6]


def test_a_new_connection_does_not_pass_earlier(paced: ProxyFixture) -> None:
    """A client that closes its connection and opens another one waits as long."""
    first = paced.connect()
    use_burst(first)
    first.client.close()
    paced.wait(0)
    second = paced.connect()
    assert second.sends(produce_of(100, 1)) == []
    paced.wait(499)
    assert second.forwarded() == []
    paced.wait(1)
    assert second.forwarded() == [1]


def test_a_half_closed_connection_waits_too(paced: ProxyFixture) -> None:
    """Requests of a client that has closed its side are forwarded at the bound."""
    peer = paced.connect()
    use_burst(peer)
    peer.sends(produce_of(1_000, 2), produce_of(1_000, 3))
    peer.connection.client_eof()
    assert peer.forwarded() == []
    paced.wait(500)
    assert peer.forwarded() == [2]
    peer.answers(answer(2))
    paced.wait(999)
    assert peer.forwarded() == []
    paced.wait(1)
    assert peer.forwarded() == [3]


def test_a_produce_without_a_response_waits(paced: ProxyFixture) -> None:
    """A Produce with acks=0 is charged and waits like any other."""
    peer = paced.connect()
    assert peer.sends(*(produce_of(1_500, number, acks=0) for number in (1, 2))) == [1]
    paced.wait(499)
    assert peer.forwarded() == []
    paced.wait(1)
    assert peer.forwarded() == [2]
    assert group_of(paced).lead_ms(paced.now_ms) == 2_500


def test_observe_lets_everything_pass(paced: ProxyFixture) -> None:
    """In `observe` nothing waits, and what would have waited is counted."""
    paced.enforcement.mode = Mode.OBSERVE
    peer = paced.connect()
    use_burst(peer)
    assert peer.sends(produce_of(100, 2)) == [2]
    assert group_of(paced).throttle_count == 1
    assert group_of(paced).throttle_ms_total == 500


def test_a_drain_lets_everything_pass(paced: ProxyFixture) -> None:
    """When Sluice drains, a waiting Produce is forwarded."""
    peer = paced.connect()
    use_burst(peer)
    assert peer.sends(produce_of(100, 2)) == []
    peer.connection.drain()
    assert peer.forwarded() == [2]


def test_waits_are_counted(paced: ProxyFixture) -> None:
    """The wait of a request counts as a throttle of its group, with its length."""
    peer = paced.connect()
    use_burst(peer)
    peer.sends(produce_of(100, 2))
    paced.wait(500)
    group = group_of(paced)
    assert (group.throttle_count, group.throttle_ms_total) == (1, 500)


def test_a_long_wait_is_announced(paced: ProxyFixture) -> None:
    """When the schedule is further ahead than a response is held at most, the answer announces the wait."""
    peer = paced.connect()
    data = peer.asks(produce_of(8_000, 1), answer(1))
    assert throttle_ms(data, ApiKey.PRODUCE, PRODUCE_VERSION) == 7_000


def test_a_short_wait_is_not_announced(paced: ProxyFixture) -> None:
    """A wait of up to `delay_max_ms` is served by the proxy and not announced."""
    peer = paced.connect()
    data = peer.asks(produce_of(6_000, 1), answer(1))
    assert throttle_ms(data, ApiKey.PRODUCE, PRODUCE_VERSION) == 0


def test_a_client_does_not_give_up(paced: ProxyFixture) -> None:
    """After 25 s one request of a group passes before its time, with no more than the bound passes in 25 s, and after as long the next."""
    first, second = paced.connect(), paced.connect()
    first.asks(produce_of(100_000, 1), answer(1))
    assert first.sends(produce_of(100, 2)) == second.sends(produce_of(100, 1)) == []
    paced.wait(24_999)
    assert first.forwarded() == second.forwarded() == []
    paced.wait(1)
    assert sorted(first.forwarded() + second.forwarded()) in ([1], [2])
    paced.wait(24_999)
    assert first.forwarded() == second.forwarded() == []
    paced.wait(1)
    assert first.forwarded() or second.forwarded()


def test_a_larger_request_waits_for_the_schedule(paced: ProxyFixture) -> None:
    """A request with more bytes than the bound passes in 25 s does not pass before its time."""
    peer = paced.connect()
    peer.asks(produce_of(40_000, 1), answer(1))
    peer.sends(produce_of(25_001, 2))
    paced.wait(38_999)
    assert peer.forwarded() == []
    paced.wait(1)
    assert peer.forwarded() == [2]


def test_a_removed_quota_lets_waiting_requests_pass(paced: ProxyFixture) -> None:
    """When the quota of a group becomes unlimited, waiting requests pass within a second."""
    peer = paced.connect()
    peer.asks(produce_of(40_000, 1), answer(1))
    peer.sends(produce_of(100, 2))
    paced.set_quota(produce=float("inf"))
    paced.wait(1_000)
    assert peer.forwarded() == [2]


def test_a_switch_lets_waiting_requests_pass(paced: ProxyFixture) -> None:
    """When a switch takes a client out of enforcement, its waiting request passes at once, and no place is left in the line."""
    peer = paced.connect()
    use_burst(peer)
    assert peer.sends(produce_of(100, 2)) == []
    group = group_of(paced)
    assert len(group.line) == 1
    paced.switch({"all": "off"})
    assert peer.forwarded() == [2]
    assert len(group.line) == 0


def note(proxy: ProxyFixture, sizes: list[int], passed: list[tuple[int, int]]) -> Callable[[bytes | memoryview], None]:
    """Return a function that notes the time and the size of requests that are written to the broker."""
    return lambda data: passed.extend((proxy.now_ms, sizes[number]) for number in request_ids(bytes(data)))


LOADS = st.lists(st.lists(st.integers(80, 900), min_size=1, max_size=4), min_size=1, max_size=5)
"""Sizes of the requests that each connection sends together; all of them are less than the bound passes in 25 s."""


@settings(max_examples=25, deadline=None)
@given(loads=LOADS, burst_ms=st.sampled_from([10, 500, 1_000]))
def test_any_span_passes_no_more_than_bound_and_burst(loads: list[list[int]], burst_ms: int) -> None:
    """Whatever connections send together, in any span L at most bound x (L + burst) and one request reach the broker."""
    passed: list[tuple[int, int]] = []
    with ProxyFixture(produce=BOUND, factories=PacedGroups(burst_ms)) as proxy:
        for sizes in loads:
            peer = proxy.connect()
            peer.broker.write = peer.connection.client.write_peer = note(proxy, sizes, passed)  # type: ignore[method-assign]
            peer.client.arrive(b"".join(produce_of(size, at) for at, size in enumerate(sizes)))
        proxy.wait(24_000)  # before the first age step
    assert len(passed) == sum(map(len, loads))
    for first, (begin_ms, _) in enumerate(passed):
        before_last = 0
        for (_, size), (end_ms, _) in pairwise(passed[first:]):
            before_last += size
            assert before_last <= Fraction(int(BOUND)) * (end_ms - begin_ms + burst_ms) / 1_000


STEPS = st.lists(
    st.tuples(
        st.integers(0, 6), st.one_of(st.sampled_from([80, 200]), st.integers(80, 900)), st.sampled_from([0, 0, 0, 1, 2, 20, 60, 700])
    ),
    min_size=1,
    max_size=30,
)
"""Connection, or 6 for a change of the bound, size of a request, and pause after it in ms."""


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.OBSERVE])
def test_the_short_path_charges_what_the_general_path_charges(mode: Mode) -> None:
    """Requests that pass at once are charged to group and members, recorded and forwarded as by the general path."""
    passes = PacedRequests.passes
    found: list[RequestContext | None] = []
    called: list[str] = []

    def noted(requests: PacedRequests, context: RequestContext, size: int, now_ms: int) -> RequestContext | None:
        found.append(passes(requests, context, size, now_ms))
        return found[-1]

    @settings(max_examples=40, deadline=None)
    @given(steps=STEPS, bound=st.sampled_from([BOUND, 100_000.0, 3e8 / 7]))
    @example(steps=[(0, 200, 2), (0, 80, 20)] * 3, bound=BOUND)
    @example(steps=[(0, 80, 0)] * 20, bound=BOUND)
    @example(steps=[(5, 80, 0), *[(0, 80, 0)] * 20], bound=BOUND)
    @example(steps=[*[(0, 80, 0)] * 3, (6, 80, 0), (0, 80, 0), (6, 900, 0), *[(0, 80, 0)] * 4], bound=BOUND)
    @example(steps=[*[(3, 80, 2), (0, 80, 0)] * 2, (3, 80, 0)], bound=BOUND)
    @example(steps=[*[(3, 80, 20)] * 2, *[(0, 80, 20)] * 80, (0, 80, 0), (3, 80, 0), (0, 80, 0)], bound=100_000.0)
    def compare(steps: list[tuple[int, int, int]], bound: float) -> None:
        with mock.patch.object(PacedRequests, "passes", noted), noted_calls(called, "passes_at_once"):
            short = _played(steps, mode, bound)
        with mock.patch.object(PacedRequests, "passes", return_value=None):
            general = _played(steps, mode, bound)
        assert general == short

    compare()
    assert any(found) is (mode is Mode.DELAY)
    assert sum(one is not None for one in found) > len(called) or mode is Mode.OBSERVE, "some are charged where they pass"


@contextmanager
def noted_calls(called: list[str], name: str) -> Iterator[None]:
    """Add the name of a method of `PacedGroup` to a list at each call of it that did something."""
    method = getattr(PacedGroup, name)

    def noted(*arguments: object) -> bool:
        done: bool = method(*arguments)
        called.extend([name] if done else [])
        return done

    with mock.patch.object(PacedGroup, name, noted):
        yield


def _played(steps: list[tuple[int, int, int]], mode: Mode, bound: float) -> list[object]:
    """Return what reached the broker and when, and the state of the group and its members."""
    passed: list[tuple[int, int]] = []
    with ProxyFixture(produce=bound, factories=PacedGroups(1_000), mode=mode) as proxy:

        def forward(peer: Peer, delay_s: float) -> Callable[[bytes | memoryview], None]:
            def forwarded(data: bytes | memoryview) -> None:
                for number in request_ids(bytes(data)):
                    passed.append((proxy.now_ms, number))
                    proxy.loop.call_later(delay_s, peer.broker.arrive, answer(number))

            return forwarded

        peers = [proxy.connect(host=f"10.0.0.{1 + at // 3}") for at in range(6)]
        for at, peer in enumerate(peers):
            peer.broker.write = peer.connection.client.write_peer = forward(peer, bool(at) / 1_000)  # type: ignore[method-assign]
        for number, (at, size, pause_ms) in enumerate([(0, 80, 0), *steps]):
            if at == len(peers):
                proxy.change_bounds(bound * (1.5 if size < 500 else 0.4))
            else:
                peers[at].client.arrive(produce_of(size, number))
            proxy.wait(pause_ms)
        group = group_of(proxy)
        members = [(one.virtual_ns, one.claims_until_ns) for one in group.line.root.members.values()]
        assert not any(peer.connection.closing for peer in peers)
        assert proxy.loop.crashes == []
        return [passed, group.schedule.virtual_ns, members, group.state, group.throttle_count]
