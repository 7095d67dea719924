"""Fetch under paced enforcement: it reserves the most that it may return, and is charged when its response arrives."""

import struct
from collections.abc import Callable
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.request_head import read_request_head
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.quota_scope import ClientQuota
from proxy.meter.meter import Meter
from proxy.session.request_context import RequestContext
from proxy.session.requests.paced_requests import PacedRequests
from proxy.session.throttle.fetch_admission import FetchAdmission
from tests.proxy.session.paced.test_paced_produce import noted_calls
from tests.support.frames.kafka_frames import fetch, split
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import BOUND, FETCH_VERSION, fetched_of


def ask(number: int, *, max_bytes: int = 50_000_000) -> bytes:
    """Return a Fetch request."""
    return fetch(number, version=FETCH_VERSION, max_bytes=max_bytes)


def group_of(proxy: ProxyFixture) -> PacedGroup:
    """Return the group of fetched bytes."""
    (group,) = proxy.scope.fetch.groups()
    assert isinstance(group, PacedGroup)
    return group


def requested_bytes(peer: Peer) -> int | None:
    """Return `max_bytes` of the Fetch that reached the broker last."""
    frame = split(peer.broker.take())[-1]
    (size,) = struct.unpack_from(">i", frame)
    head = read_request_head(frame, 0, size)
    assert head is not None
    return head.max_bytes


def test_it_requests_a_share_of_the_burst(paced: ProxyFixture) -> None:
    """A Fetch requests no more than its share of the burst: half of it for one consumer, so that the next one can be in flight."""
    peer = paced.connect()
    peer.client.arrive(ask(1))
    assert requested_bytes(peer) == 500
    assert group_of(paced).pending == 500


def test_a_fetch_that_requests_less_is_not_changed(paced: ProxyFixture) -> None:
    """A Fetch that requests less than its share is forwarded as it is, and reserves that."""
    peer = paced.connect()
    peer.client.arrive(ask(1, max_bytes=100))
    assert requested_bytes(peer) == 100
    assert group_of(paced).pending == 100


def test_what_is_reserved_counts(paced: ProxyFixture) -> None:
    """A Fetch waits while the schedule, and what fetches in flight have reserved, are more than the burst ahead with it."""
    peers = [paced.connect() for _ in range(3)]
    assert [peer.sends(ask(1)) for peer in peers] == [[1], [1], []]
    group = group_of(paced)
    assert group.pending == 1_000
    assert peers[0].answers(fetched_of(100, 1)) == [1]
    assert group.pending == 500
    paced.wait(0)
    assert peers[2].forwarded() == [1], "an answer that returns less than it may makes room at once"


def test_the_schedule_is_charged_at_the_answer(paced: ProxyFixture) -> None:
    """The schedule is charged what the response has, when that arrives."""
    peer = paced.connect()
    peer.sends(ask(1))
    assert group_of(paced).lead_ms(paced.now_ms) == 0
    peer.answers(fetched_of(400, 1))
    assert group_of(paced).lead_ms(paced.now_ms) == 400
    assert group_of(paced).pending == 0


def test_a_larger_batch_is_charged_whole(paced: ProxyFixture) -> None:
    """A response with a batch above `max_bytes` is charged whole, and the next Fetch of the connection reserves as much."""
    peer = paced.connect()
    peer.asks(ask(1), fetched_of(2_500, 1))
    group = group_of(paced)
    assert group.lead_ms(paced.now_ms) == 2_500
    assert peer.sends(ask(2)) == []
    paced.wait(2_499)
    assert peer.forwarded() == []
    paced.wait(1)
    assert peer.forwarded() == [2]
    assert group.pending == 2_500


def test_a_larger_batch_is_charged_to_its_member(paced: ProxyFixture) -> None:
    """A client that fetches larger batches than it requests, each on a new connection, gets no more than another one that does not."""
    got = {"10.0.0.1": 0, "10.0.0.2": 0}
    asks: dict[str, tuple[Peer, int]] = {}
    for host in got:
        peer = paced.connect(host=host)
        peer.client.arrive(ask(1))
        asks[host] = peer, 1
    for _ in range(6_000):
        for host, (peer, number) in asks.items():
            if not peer.broker.written:
                continue
            most = requested_bytes(peer)
            assert most is not None
            size = 3 * most if host == "10.0.0.1" else most
            peer.broker.arrive(fetched_of(size, number))
            got[host] += size
            if host == "10.0.0.1":
                peer.client.close()
                paced.wait(0)
                peer, number = paced.connect(host=host), 0
            peer.client.arrive(ask(number + 1))
            asks[host] = peer, number + 1
        paced.wait(20)
    first, second = got.values()
    assert first <= 1.05 * second, "it got three times as much"


def test_larger_batches_of_new_connections_are_expected(paced: ProxyFixture) -> None:
    """A Fetch of a new connection reserves as much as the largest response above what was requested, until the schedule is idle."""
    paced.connect().asks(ask(1), fetched_of(900, 1))
    peers = [paced.connect() for _ in range(4)]
    assert [peer.sends(ask(1)) for peer in peers] == [[]] * 4, "a lead of 900 ms, and 900 bytes each"
    paced.wait(800)
    assert [peer.forwarded() for peer in peers] == [[1], [], [], []]
    group = group_of(paced)
    assert group.pending == 900
    for peer in peers:
        peer.client.close()
    paced.wait(200)
    paced.connect().sends(ask(1))
    assert group.pending < 500, "the schedule was idle"


def test_the_header_of_a_full_response_is_no_larger_batch(paced: ProxyFixture) -> None:
    """After a full response, which has a header beside what was requested, fetches reserve their own share and that header."""
    first, second, third = (paced.connect() for _ in range(3))
    first.asks(ask(1), fetched_of(520, 1))
    group = group_of(paced)
    assert second.sends(ask(1)) == [], "a lead of 520 ms, and 500 bytes"
    paced.wait(20)
    assert second.forwarded() == [1]
    assert group.pending == 500, "the first Fetch of a connection reserves what it requests"
    assert third.sends(ask(1)) == first.sends(ask(2)) == []
    second.answers(fetched_of(100, 1))
    paced.wait(600)
    assert third.forwarded() + first.forwarded() == [1, 2]
    assert group.pending == 333 + 333 + 20, "smaller shares, and the header of the last response of the first connection"


def test_a_connection_that_ends_reserves_nothing(paced: ProxyFixture) -> None:
    """What a connection has reserved, and its place among the waiting fetches, end with it; its response is still charged."""
    first, second, third = paced.connect(), paced.connect(), paced.connect()
    assert [peer.sends(ask(1)) for peer in (first, second, third)] == [[1], [1], []]
    first.client.close()
    paced.wait(0)
    assert third.forwarded() == [1]
    group = group_of(paced)
    assert group.open_fetches == 2
    first.broker.arrive(fetched_of(300, 1))
    assert group.lead_ms(paced.now_ms) == 300
    for peer in (second, third):
        peer.client.close()
    paced.wait(0)
    assert group.pending == group.open_fetches == len(group.line) == 0


@pytest.mark.parametrize("consumers", [1, 4, 16])
def test_consumers_get_the_bound(consumers: int) -> None:
    """Consumers that fetch whatever they may, with answers after 5 ms, get 0.98 to 1.02 times the bound, and in no second more than 1.1."""
    with ProxyFixture(fetch=1e6, factories=PacedGroups(1_000)) as proxy:
        peers = [proxy.connect() for _ in range(consumers)]
        sent = dict.fromkeys(range(consumers), 0)
        seconds = [0] * 20
        begin_ms = proxy.now_ms

        def go_on(at: int) -> None:
            sent[at] += 1
            peers[at].client.arrive(ask(sent[at]))
            answer_soon(at)

        def answer_soon(at: int) -> None:
            proxy.loop.call_later(0.005, answer, at)

        def answer(at: int) -> None:
            written = peers[at].broker.written
            if not written:
                answer_soon(at)
                return
            most = requested_bytes(peers[at])
            assert most is not None
            second = (proxy.now_ms - begin_ms) // 1_000
            if second < len(seconds):
                seconds[second] += most
            peers[at].broker.arrive(fetched_of(most, sent[at]))
            go_on(at)

        for at in range(consumers):
            go_on(at)
        for _ in range(20):
            proxy.wait(1_000)
    steady = [bytes_there / 1e6 for bytes_there in seconds[5:]]
    assert 0.98 <= sum(steady) / len(steady) <= 1.02
    assert max(steady) <= 1.1


def test_decisions_are_metered_as_checked_and_unchecked(paced: ProxyFixture) -> None:
    """The part of a response that was reserved is metered as checked, the rest as unchecked."""
    noted: list[tuple[str, int]] = []

    class Notes(Meter):
        def passed(self, group: object, value: int, now_ms: int, conn_id: int, api_index: int) -> None:
            noted.append(("checked", value))

        def record_unchecked(self, group: object, value: int, now_ms: int, conn_id: int, api_index: int, kind: int = 1) -> None:
            noted.append(("unchecked", value))

    paced.settings.meter = Notes(lambda _batch: True, lambda _group: ({}, {}), 0)
    peer = paced.connect()
    peer.asks(ask(1), fetched_of(2_500, 1))
    assert noted == [("checked", 500), ("unchecked", 2_000)]
    assert BOUND == 1_000


STEPS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from([100, 100, 300, 400, 2_000]),
        st.sampled_from([90, 100, 300, 2_500]),
        st.sampled_from([0, 0, 0, 1, 2, 20, 60, 700]),
    ),
    min_size=1,
    max_size=30,
)
"""Connection, or 6 for a change of the bound, bytes that a fetch requests, bytes of its response, and pause after it in ms.

The response to a connection comes so many steps later as its number.
"""

AT_ONCE = (0, 100, 90, 0)
IN_ONE_MILLISECOND = (
    [AT_ONCE] * 20,
    [(4, 100, 90, 0), (5, 100, 90, 0), *[AT_ONCE] * 20],
    [AT_ONCE, AT_ONCE, (6, 2_000, 0, 0), (1, 300, 90, 0), AT_ONCE],
    [(1, 100, 90, 0), (2, 100, 90, 0), (3, 100, 90, 0), (0, 3_000, 90, 0)],
    [(1, 100, 90, 0), (0, 4_000, 90, 0)],
    [(3, 100, 2_500, 0), AT_ONCE, AT_ONCE, (1, 100, 90, 0), AT_ONCE, AT_ONCE],
)
"""What ends the usual case: the burst of the group or of a member, another bound, more open fetches than before, a request for more than a
share, and a response that is larger than what was requested."""


SETTLED = [(3, 100, 90, 700), (2, 100, 90, 700), (1, 4_000, 90, 700), *[(0, 100, 90, 700)] * 8]
"""One request of each connection, and then one fetch at a time for so long that more at a time are forgotten."""

MORE_THAN_BEFORE = [(0, 100, 90, 0), (3, 100, 90, 0), (2, 100, 90, 0), *[(0, 100, 90, 0)] * 4]
"""Three fetches are open at a time. All are answered in the end, so only the highest number of the last seconds tells of them."""

SHARE_SHRINKS = [(1, 4_000, 90, 0), (0, 100, 90, 0), (3, 100, 90, 0), (2, 100, 90, 0), (0, 100, 90, 0), (0, 100, 90, 0), (1, 4_000, 90, 0)]
"""A fetch that requested less than a share of the burst requests more than one, since more fetches were open meanwhile."""

LESS_MEMBERS = [
    *[(4, 100, 90, 20), *[(0, 100, 90, 20)] * 5] * 2,
    *[*[(0, 100, 90, 20)] * 100, (0, 100, 90, 0), (4, 100, 90, 0), (0, 100, 90, 0)],
]
"""A member has no claim any more, is forgotten, and returns."""

ANSWER_BESIDE_A_WAIT = [
    *[(3, 300, 90, 700), (2, 300, 90, 700), (1, 300, 90, 700), *[(0, 100, 90, 700)] * 8],
    *[(0, 100, 90, 0), (3, 300, 90, 0), (2, 300, 90, 0), (1, 300, 90, 0), (0, 100, 90, 0)],
]
"""A fetch waits until a response leaves it room, which arrives in the same millisecond."""

ANSWER_AFTER_A_CHANGE = [*[(3, 100, 90, 700), *[(0, 100, 90, 700)] * 3] * 2, (3, 100, 90, 0), (6, 2_000, 0, 0), *[(0, 100, 90, 0)] * 3]
"""The bound changes between a fetch and its response, and others pass by the new one."""


def after_first_requests(steps: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return the steps after a request like the first one of each connection, and a pause: another one takes the general path."""
    first = {at: (at, requested, 90, 20) for at, requested, _, _ in reversed(steps) if at < 6}
    return [*first.values(), *first.values(), (6, 2_000, 0, 0), (6, 0, 0, 700), *steps]


def test_the_short_path_reserves_and_charges_what_the_general_path_does() -> None:
    """Fetches that pass at once, and their responses, leave group, members and client as the general path leaves them."""
    reserves, answers = PacedRequests.reserves, FetchAdmission.answered_at_once
    taken: list[str] = []

    def noted_pass(requests: PacedRequests, context: RequestContext, now_ms: int) -> RequestContext | None:
        found = reserves(requests, context, now_ms)
        taken.extend(["request"] if found else [])
        return found

    def noted_answer(admission: FetchAdmission, client: ClientQuota, size_bytes: int, now_ms: int) -> PacedGroup | None:
        found = answers(admission, client, size_bytes, now_ms)
        taken.extend(["answer"] if found else [])
        return found

    @settings(max_examples=40, deadline=None)
    @given(steps=STEPS, bound=st.sampled_from([BOUND, 100_000.0, 3e8 / 7]))
    @example(steps=[(0, 100, 90, 2), (0, 100, 100, 2)] * 3, bound=BOUND)
    @example(steps=after_first_requests(IN_ONE_MILLISECOND[0]), bound=BOUND)
    @example(steps=after_first_requests(IN_ONE_MILLISECOND[1]), bound=BOUND)
    @example(steps=after_first_requests(IN_ONE_MILLISECOND[2]), bound=BOUND)
    @example(steps=after_first_requests(IN_ONE_MILLISECOND[3]), bound=10 * BOUND)
    @example(steps=after_first_requests(IN_ONE_MILLISECOND[4]), bound=10 * BOUND)
    @example(steps=after_first_requests(IN_ONE_MILLISECOND[5]), bound=BOUND)
    @example(steps=[*SETTLED, *MORE_THAN_BEFORE], bound=10 * BOUND)
    @example(steps=[*SETTLED, *SHARE_SHRINKS], bound=10 * BOUND)
    @example(steps=LESS_MEMBERS, bound=100_000.0)
    @example(steps=ANSWER_BESIDE_A_WAIT, bound=BOUND)
    @example(steps=ANSWER_AFTER_A_CHANGE, bound=10 * BOUND)
    def compare(steps: list[tuple[int, int, int, int]], bound: float) -> None:
        with (
            mock.patch.object(PacedRequests, "reserves", noted_pass),
            mock.patch.object(FetchAdmission, "answered_at_once", noted_answer),
            noted_calls(taken, "reserves_at_once"),
            noted_calls(taken, "answers_at_once"),
        ):
            short = played(steps, bound)
        with (
            mock.patch.object(PacedRequests, "reserves", return_value=None),
            mock.patch.object(FetchAdmission, "answered_at_once", return_value=None),
        ):
            general = played(steps, bound)
        assert general == short

    compare()
    assert taken.count("request") > taken.count("reserves_at_once") > 0, "some are reserved where they pass"
    assert taken.count("answer") > taken.count("answers_at_once") > 0, "some are charged where they arrive"


def played(steps: list[tuple[int, int, int, int]], bound: float) -> list[object]:
    """Return what reached the broker and when, and the state of the group and its members."""
    passed: list[tuple[int, bytes]] = []
    waiting: list[tuple[int, Peer, bytes]] = []
    steps = [(0, 100, 90, 0), *steps]
    with ProxyFixture(fetch=bound, factories=PacedGroups(1_000)) as proxy:

        def forward(peer: Peer, steps_later: int) -> Callable[[bytes | memoryview], None]:
            def forwarded(data: bytes | memoryview) -> None:
                for frame in split(bytes(data)):
                    passed.append((proxy.now_ms, frame))
                    (number,) = struct.unpack_from(">i", frame, 8)
                    response = fetched_of(steps[number][2], number)
                    if steps_later:
                        waiting.append((number + steps_later, peer, response))
                    else:
                        proxy.loop.call_soon(peer.broker.arrive, response)

            return forwarded

        peers = [proxy.connect(host=f"10.0.0.{max(1, at - 2)}") for at in range(6)]
        for at, peer in enumerate(peers):
            peer.broker.write = peer.connection.client.write_peer = forward(peer, at)  # type: ignore[method-assign]
        for number, (at, requested, _, pause_ms) in enumerate(steps):
            if at == len(peers):
                proxy.change_bounds(bound * (1.5 if requested < 1_000 else 0.4))
            else:
                peers[at].client.arrive(ask(number, max_bytes=requested))
            for response in [one for one in waiting if one[0] <= number]:
                waiting.remove(response)
                response[1].broker.arrive(response[2])
            proxy.wait(pause_ms)
        group = group_of(proxy)
        members = [(one.virtual_ns, one.claims_until_ns, one.open_fetches) for one in group.line.root.members.values()]
        share = group.share_bytes(next(iter(group.line.root.members.values())), proxy.now_ms)
        assert not any(peer.connection.closing for peer in peers)
        assert proxy.loop.crashes == []
        return [passed, group.schedule.virtual_ns, members, group.state, group.pending, group.open_fetches, share]
