"""Responses that arrive many at a time are counted as if each had arrived alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.enforcement.mode import Mode
from proxy.meter.batch import BATCH_WORDS, Batch
from proxy.meter.meter import Meter, TracingMeter
from proxy.meter.record import RUN_VALUE_END
from proxy.meter.usage import Place
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from tests.proxy.session.requests.test_segmentation import client_address, counts_of, exchange
from tests.support.frames.kafka_frames import fetch, fetched, produce, produced
from tests.support.memory.memory_connection import BROKER, Peer, ProxyFixture
from tests.support.metering.noted_decisions import decisions_of

OLD = -1
OLD_FETCH = -2
# mostly Produce with three kinds of responses; acks=0, Fetch, Metadata and Heartbeat in between
KINDS = st.sampled_from([OLD, OLD, OLD, OLD, 0, 0, 0, 1, 1, 1, 2, 3, 6, 11])
EXCHANGES = st.lists(st.tuples(KINDS, st.sampled_from([0, 1, 50, 600, 3_000])), min_size=2, max_size=40)
UNLIMITED = 1e12
# where responses are held, the result depends on the time at which they arrive
PACES = [(mode, bound) for mode in (Mode.OBSERVE, Mode.MUTE) for bound in (20.0, 2_000.0)] + [(mode, UNLIMITED) for mode in Mode]


def exchange_of(kind: int, number: int, size: int) -> tuple[bytes, bytes]:
    """Return the exchange of `exchange`, or a Produce or a Fetch whose response header has no tagged fields."""
    if kind == OLD_FETCH:
        return fetch(number, version=11), fetched(number, size=size, version=11)
    return (produce(number, size=size, version=7), produced(number, version=7)) if kind == OLD else exchange(kind, number, size)


def metered(meter_of_level: type[Meter], **quotas: Any) -> tuple[ProxyFixture, list[Batch]]:
    """Return a proxy with a meter, and the list of the batches that the meter hands over."""
    batches: list[Batch] = []

    def keep(batch: Batch) -> bool:
        batches.append(batch)
        return True

    proxy = ProxyFixture(**quotas)
    proxy.settings.meter = meter_of_level(keep, lambda _group: ({"quota_type": "Produce"}, {}), 0)
    return proxy, batches


def connected(proxy: ProxyFixture) -> Peer:
    peer = proxy.connect(client_address)
    peer.connection.session.set_usage_place(Place(BROKER, "default"))
    return peer


def rows_of(batches: list[Batch]) -> Iterator[tuple[int, int, int, int]]:
    """Yield what each decision says however the responses are cut, after checking the number of decisions in each batch."""
    next_seq = 0
    for batch in batches:
        rows = decisions_of(batch)
        assert (batch.first_seq, batch.count) == (next_seq, len(rows))
        next_seq += batch.count
        for row in rows:
            yield row["group_ref"], row["ts_ms"], row["value"], row["throttle_ms"]


def relay(
    exchanges: list[tuple[int, int]],
    lengths: list[int],
    mode: Mode,
    bound: float,
    meter_of_level: type[Meter],
    *,
    parent: bool,
    fetch_bound: float = UNLIMITED,
) -> tuple[bytes, list[object]]:
    """Send all requests, then their responses, in pieces of these lengths or one by one; return what arrived and what was counted."""
    pairs = [exchange_of(kind, number, size) for number, (kind, size) in enumerate(exchanges)]
    proxy, batches = metered(meter_of_level, produce=bound, fetch=fetch_bound, mode=mode)
    with proxy:
        if parent:
            everybody, bounds = Conditions(client_ids=(Pattern("*"),)), {ClientQuotaType.PRODUCE: bound, ClientQuotaType.FETCH: fetch_bound}
            proxy.declare(DeclaredGroup("above", None, bounds), DeclaredGroup("all", everybody, bounds, "above"))
        peer = connected(proxy)
        peer.client.arrive(b"".join(request for request, _ in pairs))
        answers = [answer for _, answer in pairs]
        if lengths:
            whole, at = b"".join(answers), 0
            for length in [*lengths, 1 << 30]:
                peer.broker.arrive(whole[at : at + length])
                at += length
        else:
            for answer in answers:
                peer.broker.arrive(answer)
        meter = proxy.settings.meter
        assert meter is not None
        meter.flush()
        rows = sorted(rows_of(batches))  # a run is recorded for one group of a chain after the other
        usage = sorted(meter.usage.take())
        return peer.client.take(), [counts_of(proxy, peer), rows, usage]


@pytest.mark.parametrize("meter_of_level", [Meter, TracingMeter])
@settings(deadline=None)
@given(
    exchanges=EXCHANGES,
    lengths=st.lists(st.sampled_from([1, 9, 60, 100, 500, 3_000]), min_size=1, max_size=20) | st.just([1 << 29]),
    pace=st.sampled_from(
        [(Mode.OBSERVE, 20.0), (Mode.OBSERVE, 2_000.0), (Mode.MUTE, 200.0), (Mode.MUTE, 2_000.0), *((mode, UNLIMITED) for mode in Mode)]
    ),
    parent=st.booleans(),
)
def test_many_answers_at_a_time_count_like_single_ones(
    meter_of_level: type[Meter], exchanges: list[tuple[int, int]], lengths: list[int], pace: tuple[Mode, float], parent: bool
) -> None:
    """Counters, verdicts, latencies, metered decisions and usage are the same wherever the stream of responses is cut."""
    alone = relay(exchanges, [], *pace, meter_of_level, parent=parent)
    assert relay(exchanges, lengths, *pace, meter_of_level, parent=parent) == alone


@pytest.mark.parametrize("meter_of_level", [Meter, TracingMeter])
@settings(deadline=None)
@given(
    # mostly of one version, so that there are runs: responses with and without tagged fields, and responses that may name new leaders
    exchanges=st.sampled_from([OLD_FETCH, 9, 10]).flatmap(
        lambda kind: st.lists(
            st.tuples(st.sampled_from([kind] * 8 + [3, OLD]), st.sampled_from([0, 1, 50, 50, 50, 3_000])), min_size=2, max_size=40
        )
    ),
    lengths=st.lists(st.sampled_from([1, 9, 100, 500, 3_000, 9_000]), min_size=1, max_size=20) | st.just([1 << 29]),
    pace=st.sampled_from([(Mode.OBSERVE, 20.0), (Mode.OBSERVE, 2_000.0), *((mode, UNLIMITED) for mode in Mode)]),
    parent=st.booleans(),
)
def test_many_fetched_answers_at_a_time_count_like_single_ones(
    meter_of_level: type[Meter], exchanges: list[tuple[int, int]], lengths: list[int], pace: tuple[Mode, float], parent: bool
) -> None:
    """Fetch responses that arrive many at a time are counted as if each had arrived alone."""
    mode, bound = pace
    alone = relay(exchanges, [], mode, UNLIMITED, meter_of_level, parent=parent, fetch_bound=bound)
    assert relay(exchanges, lengths, mode, UNLIMITED, meter_of_level, parent=parent, fetch_bound=bound) == alone


def relay_in_rounds(rounds: list[list[int]], change: tuple[int, bytes] | None, *, together: bool) -> tuple[bytes, list[object]]:
    """Send the requests of each round in one piece, then their responses; return what arrived and what was counted.

    Args:
        rounds: the sizes of the requests of each round.
        change: replaces bytes of the responses of the last round from this offset on.
        together: send the responses of a round in one piece, and not one by one.
    """
    proxy, batches = metered(Meter, produce=UNLIMITED)
    with proxy:
        peer = connected(proxy)
        for at, sizes in enumerate(rounds):
            pairs = [exchange_of(OLD, number, size) for number, size in enumerate(sizes)]
            peer.client.arrive(b"".join(request for request, _ in pairs))
            answers = b"".join(answer for _, answer in pairs)
            if change is not None and at == len(rounds) - 1:
                begin, other = change[0] % len(answers), change[1]
                answers = (answers[:begin] + other + answers[begin + len(other) :])[: len(answers)]
            length = len(answers) if together else len(pairs[0][1])
            for begin in range(0, len(answers), length):
                peer.broker.arrive(answers[begin : begin + length])
        meter = proxy.settings.meter
        assert meter is not None
        meter.flush()
        in_flight = [entry[0] for entry in peer.connection.session.in_flight]
        return peer.client.take(), [counts_of(proxy, peer), list(rows_of(batches)), sorted(meter.usage.take()), in_flight]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([[50] * 4, [50] * 16, [50] * 15 + [51], [3_000] * 5, [50]]), min_size=2, max_size=4),
    st.none()
    | st.tuples(st.integers(0, 2_000), st.sampled_from([b"\x00", b"\x01", b"\xff", bytes(4), bytes(3) + b"\x02", b"\xff\xff\xff\xfc"])),
)
def test_requests_that_equal_each_other_are_counted_together_like_one_by_one(
    rounds: list[list[int]], change: tuple[int, bytes] | None
) -> None:
    """Rounds of equal requests are counted like single ones, also when a response has another size or belongs to no request."""
    assert relay_in_rounds(rounds, change, together=True) == relay_in_rounds(rounds, change, together=False)


def test_a_response_without_room_for_a_correlation_id_ends_the_connection() -> None:
    """A size below that of a correlation id is an invalid response, also when the bytes would suffice for all requests in flight."""
    with ProxyFixture(produce=UNLIMITED) as proxy:
        peer = connected(proxy)
        requests, answers = zip(*(exchange_of(OLD, number, 50) for number in range(4)), strict=True)
        peer.client.arrive(b"".join(requests))
        peer.broker.arrive(b"".join(answers))
        peer.client.arrive(b"".join(requests))
        peer.broker.arrive(bytes(3) + b"\x03" + bytes(4) + bytes(20))
        assert peer.client.take() == b"".join(answers)
        proxy.loop.turn()
        assert [detail for _, detail in proxy.closed] == ["response of 3 bytes"]


@pytest.mark.parametrize("meter_of_level", [Meter, TracingMeter])
@pytest.mark.parametrize("sizes", [[300] * 12, [300] * 4 + [301] + [300] * 7, [300, 301] * 6, [RUN_VALUE_END] * 12])
def test_runs_in_one_millisecond_are_noted_as_single_answers_are(meter_of_level: type[Meter], sizes: list[int]) -> None:
    """Several runs of one group in one millisecond are recorded as the same decisions as single responses, of any size."""
    exchanges = [(OLD, size) for size in sizes]
    alone = relay(exchanges, [], Mode.DELAY, UNLIMITED, meter_of_level, parent=False)
    four_answers = 4 * len(exchange_of(OLD, 0, 300)[1])
    assert relay(exchanges, [four_answers] * 2, Mode.DELAY, UNLIMITED, meter_of_level, parent=False) == alone


@settings(deadline=None)
@given(
    turns=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([1, 1, 2, 3, 16]), st.sampled_from([1, 50, 3_000]), st.integers(0, 7)),
        min_size=2,
        max_size=30,
    )
)
def test_groups_that_take_turns_in_one_millisecond_are_distinguished(turns: list[tuple[int, int, int, int]]) -> None:
    """Each decision is recorded for the group of its client when the responses of several groups arrive in one millisecond."""
    proxy, batches = metered(Meter, mode=Mode.OBSERVE)
    expected: list[tuple[int, int, int]] = []
    with proxy:
        peers = []
        for number, bound in enumerate((UNLIMITED, 2 * UNLIMITED, 3_000.0)):
            proxy.set_quota(produce=bound, client_id=f"app-{number}")
            peers.append(connected(proxy))
        refs: dict[int, int] = {}
        for client, count, size, wait_ms in turns:
            proxy.wait(wait_ms if wait_ms > 5 else 0)
            request = produce(1, size=size, version=7, client_id=f"app-{client}")
            peers[client].client.arrive(request * count)
            peers[client].broker.arrive(produced(1, version=7) * count)
            expected += [(refs.setdefault(client, len(refs)), proxy.now_ms, len(request) - 4)] * count
        meter = proxy.settings.meter
        assert meter is not None
        meter.flush()
    assert [row[:3] for row in rows_of(batches)] == expected


@pytest.mark.parametrize("together", [False, True])
def test_a_throttle_that_was_served_ends_with_a_run(together: bool) -> None:
    """A run of responses within the quota ends a throttle that has been served."""
    proxy, _ = metered(Meter, produce=1_000.0, mode=Mode.MUTE)
    with proxy:
        peer = connected(proxy)
        pairs = [exchange_of(OLD, number, 1) for number in range(4)]
        peer.client.arrive(b"".join(request for request, _ in pairs))
        connected(proxy).asks(*exchange_of(OLD, 1, 20_000))  # uses the same quota
        peer.broker.arrive(pairs[0][1])
        assert peer.connection.session.throttle.active
        proxy.wait(60_000)
        peer.broker.arrive(pairs[1][1])
        assert peer.connection.session.throttle.active
        rest = [answer for _, answer in pairs[2:]]
        for answers in [b"".join(rest)] if together else rest:
            peer.broker.arrive(answers)
        assert not peer.connection.session.throttle.active


@pytest.mark.parametrize("depth", [1, 2])
def test_a_bound_holds_from_the_next_answer_on(depth: int) -> None:
    """A quota that changes between two responses of one millisecond applies from the second response on."""
    proxy, batches = metered(Meter, produce=UNLIMITED)
    with proxy:
        peer = connected(proxy)
        request, answer = exchange_of(OLD, 1, 50)
        for bound in (UNLIMITED, UNLIMITED, 2 * UNLIMITED):
            proxy.set_quota(produce=bound)
            peer.client.arrive(request * depth)
            peer.broker.arrive(answer * depth)
        meter = proxy.settings.meter
        assert meter is not None
        meter.flush()
    reported = [(fact["bound"]["from_seq"], fact["bound"]["bound"]) for batch in batches for fact in batch.facts if "bound" in fact]
    assert reported == [(0, UNLIMITED), (2 * depth, 2 * UNLIMITED)]


@pytest.mark.parametrize("depth", [1, 16])
def test_more_decisions_than_a_buffer_holds_fit_into_a_millisecond(depth: int) -> None:
    """No decision is lost when one millisecond brings more decisions than a buffer holds."""
    proxy, batches = metered(Meter, produce=UNLIMITED)
    with proxy:
        peer = connected(proxy)
        requests, answers = zip(*(exchange_of(OLD, 1, 50 + number) for number in range(depth)), strict=True)
        turns = BATCH_WORDS // depth + 5
        for _ in range(turns):
            peer.client.arrive(b"".join(requests))
            peer.broker.arrive(b"".join(answers))
        meter = proxy.settings.meter
        assert meter is not None
        assert len(batches) == 1
        meter.flush()
    assert sum(usage[4] for usage in meter.usage.take()) == turns * depth
    assert list(rows_of(batches)) == [(0, proxy.now_ms, len(request) - 4, 0) for request in requests] * turns
