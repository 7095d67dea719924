"""How TCP cuts the streams into pieces changes neither the requests and responses that arrive nor what is counted, in any mode."""

from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from proxy.enforcement.mode import Mode
from proxy.session.responses.response_side import ResponseSide
from tests.support.frames.kafka_frames import (
    answered,
    api_versions,
    api_versions_answer,
    endpoint,
    fetch,
    fetched,
    metadata,
    metadata_answer,
    plain,
    produce,
    produced,
    share_fetch,
    share_fetched,
    throttle_ms,
)
from tests.support.memory.memory_connection import Peer, ProxyFixture

BROKERS = {1: ("broker-1.internal", 9092), 2: ("broker-2.internal", 9092)}
ENDPOINTS = [endpoint(node_id, host, port) for node_id, (host, port) in BROKERS.items()]
RANGES = [(0, 3, 99), (1, 4, 99), (18, 0, 99), (4, 0, 7), (999, 0, 1)]


def client_address(node_id: int, _host: str, _port: int) -> tuple[str, int] | None:
    """Return the address of the listener for a broker."""
    return "localhost", 19_092 + node_id


def exchange(kind: int, number: int, size: int) -> tuple[bytes, bytes]:
    """Return a request and its response, which is empty where the broker sends none."""
    match kind:
        case 0:
            return produce(number, size=size), produced(number)
        case 1:
            return produce(number, size=size, version=10), produced(number, version=10, endpoints=ENDPOINTS)
        case 2:
            return produce(number, size=size, acks=0), b""
        case 3:
            return fetch(number), fetched(number, size=size, tags={7: b"tag" * 20})
        case 4:
            return fetch(number, version=17), fetched(number, size=size, version=17, endpoints=ENDPOINTS)
        case 5:
            return share_fetch(number), share_fetched(number, size=size)
        case 6:
            return metadata(number), metadata_answer(number, BROKERS)
        case 7:
            return api_versions(number, 3), api_versions_answer(number, RANGES, 3)
        case 8:
            return api_versions(number, 77), b""
        case 9:
            return fetch(number), fetched(number, size=size)
        case 10:
            return fetch(number, version=17), fetched(number, size=size, version=17)
        case _:
            return plain(number, client_id="x" * (size % 300)), answered(number)


EXCHANGES = st.lists(st.tuples(st.integers(0, 11), st.sampled_from([0, 1, 50, 600, 3_000])), min_size=1, max_size=12)
CUTS = st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 23, 24, 25, 60, 1_000, 15_000]), min_size=1, max_size=40)


def relay(
    exchanges: list[tuple[int, int]],
    mode: Mode,
    bound: float,
    request_cuts: list[int],
    answer_cuts: list[int],
    wait_ms: int = 60_000,
    percent: float | None = None,
    broker_ms: int = 0,
) -> tuple[bytes, bytes, list[object]]:
    """Send requests and responses in turn, in pieces of these sizes (the last one repeats); return what arrived and what was counted."""
    pairs = [exchange(kind, number, size) for number, (kind, size) in enumerate(exchanges)]
    with ProxyFixture(produce=bound, fetch=bound, mode=mode, request=percent) as proxy:
        peer = proxy.connect(client_address)
        for request, answer in pairs:
            arrive(peer.client.arrive, request, request_cuts)
            proxy.wait(broker_ms)
            arrive(peer.broker.arrive, answer, answer_cuts)
            proxy.wait(wait_ms)
        return peer.broker.take(), peer.client.take(), counts_of(proxy, peer)


def counts_of(proxy: ProxyFixture, peer: Peer) -> list[object]:
    """Return what was counted for the process and for the connection."""
    session = peer.connection.session
    groups = [group for manager in proxy.scope.own_managers for group in manager.groups()]
    return [
        session.requests.frames,
        session.responses.answers,
        len(session.in_flight),
        [(usage.client_id, usage.produce_bytes, usage.fetch_bytes, usage.requests) for usage in proxy.usages.snapshot()],
        [(group.key, group.recorded_total, group.pending, group.throttle_count, list(group.verdicts)) for group in groups],
        proxy.counters.latencies.rows,
    ]


def arrive(deliver: "object", data: bytes, cuts: list[int]) -> None:
    """Deliver `data` in pieces of these sizes."""
    at, step = 0, 0
    while at < len(data):
        size = cuts[min(step, len(cuts) - 1)]
        deliver(data[at : at + size])  # type: ignore[operator]
        at, step = at + size, step + 1


@pytest.mark.parametrize("mode", list(Mode))
@settings(deadline=None, max_examples=100)
@given(exchanges=EXCHANGES, request_cuts=CUTS, answer_cuts=CUTS, bound=st.sampled_from([20.0, 1_000.0, 1e12]))
@example(  # the rest of an acks=0 request of which only the head had been read when it had to wait
    exchanges=[(0, 3000), (0, 0), (2, 3000), (2, 600), (8, 0)], request_cuts=[1], answer_cuts=[1], bound=20.0
)
def test_any_cut_gives_the_same_streams(
    mode: Mode, exchanges: list[tuple[int, int]], request_cuts: list[int], answer_cuts: list[int], bound: float
) -> None:
    """However the streams are cut, the broker gets the same requests and, unless a Fetch is padded, the client the same responses."""
    whole = relay(exchanges, mode, bound, [10**9], [10**9])
    cut = relay(exchanges, mode, bound, request_cuts, answer_cuts)
    assert cut[0] == whole[0]
    if not any(kind in (4, 10) for kind, _ in exchanges):
        assert cut[1] == whole[1]
    assert b"internal" not in cut[1]


@pytest.mark.parametrize("mode", list(Mode))
@settings(deadline=None, max_examples=100)
@given(
    exchanges=EXCHANGES,
    request_cuts=CUTS,
    answer_cuts=CUTS,
    pace=st.sampled_from([(20.0, 60_000), (1_000.0, 60_000), (1e12, 0), (1e12, 300)]),
)
def test_any_cut_leaves_the_same_books(
    mode: Mode, exchanges: list[tuple[int, int]], request_cuts: list[int], answer_cuts: list[int], pace: tuple[float, int]
) -> None:
    """Frames that arrive in pieces are counted and judged exactly like frames that arrive whole."""
    bound, wait_ms = pace
    whole = relay(exchanges, mode, bound, [10**9], [10**9], wait_ms)
    assert relay(exchanges, mode, bound, request_cuts, answer_cuts, wait_ms)[2] == whole[2]


@pytest.mark.parametrize("mode", list(Mode))
@settings(deadline=None, max_examples=50)
@given(
    exchanges=EXCHANGES,
    bound=st.sampled_from([20.0, 1_000.0, 1e12]),
    percent=st.sampled_from([0.000_1, 0.005, 0.01, 1e9]),
    wait_ms=st.sampled_from([0, 300, 60_000]),
    broker_ms=st.sampled_from([0, 3, 900]),
)
@example(exchanges=[(0, 50)] * 6, bound=1e12, percent=0.005, wait_ms=0, broker_ms=3)  # request time exceeds its quota, on the fast path
@example(exchanges=[(0, 3000)] * 2, bound=320.0, percent=1e9, wait_ms=0, broker_ms=3)  # bytes exceed theirs, once the time has been charged
def test_the_short_way_of_an_answer_is_the_long_one(
    mode: Mode, exchanges: list[tuple[int, int]], bound: float, percent: float, wait_ms: int, broker_ms: int
) -> None:
    """The fast path for a response that arrives whole records the same bytes, time and verdicts as the general path."""
    short = relay(exchanges, mode, bound, [10**9], [10**9], wait_ms, percent, broker_ms)
    with mock.patch.object(ResponseSide, "scan", ResponseSide._follow):
        assert relay(exchanges, mode, bound, [10**9], [10**9], wait_ms, percent, broker_ms) == short


@settings(deadline=None)
@given(cuts=CUTS, tag=st.binary(max_size=200))
def test_tagged_fields_in_a_header_hide_no_throttle_time(cuts: list[int], tag: bytes) -> None:
    """The throttle time is written at its place behind a tagged field of any length, and the bytes are counted as Kafka counts them."""
    with ProxyFixture(fetch=1_000.0, mode=Mode.MUTE) as proxy:
        peer = proxy.connect()
        peer.sends(fetch(1))
        arrive(peer.broker.arrive, fetched(1, size=30_000, tags={5: tag}), cuts)
        bare = fetched(1, size=30_000)
        answer = peer.client.take()
        head_bytes = len(answer) - len(bare)
        assert throttle_ms(answer[:8] + b"\0" + answer[9 + head_bytes :], ApiKey.FETCH, 12) == len(bare) - 5 - 10_000
