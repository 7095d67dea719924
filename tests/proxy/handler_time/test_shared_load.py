"""Workers that share a broker estimate its load as one process with all connections does."""

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from proxy.handler_time import BrokerHandlerTime, ConnectionHandlerTime, HandlerTimes, Work, shared_by, work_of
from proxy.handler_time.broker import DOWN, LOAD_WINDOW_NS, UNIT_NS
from proxy.handler_time.shared import CLAIM_INTERVAL_NS, SharedBrokerHandlerTime
from proxy.shared_usage.broker_rows import ROWS_MAX
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from tests.support.memory.shared_workers import new_segment

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
START_NS = 3_600 * SECOND
ADDRESS = ("broker", 9092)
METADATA, FETCH = work_of(ApiKey.METADATA), work_of(ApiKey.FETCH)
CONNECTIONS = 16
DUE = 7
"""The last word of a column, which a writer writes first."""


def worker_of(segment: Segment, number: int) -> HandlerTimes:
    """Return one worker's estimates of brokers."""
    return HandlerTimes(shared_by(SharedUsage(segment, number)))


def answers(seed: int, took_ns: int) -> Iterator[tuple[int, int, int]]:
    """Yield (connection, forwarded_ns, answered_ns) of connections that are always busy, in the order of the responses."""
    chance = random.Random(seed)
    forwarded_ns = [START_NS] * CONNECTIONS
    ends_ns = [START_NS + chance.randrange(took_ns // 2, took_ns * 2) for _ in range(CONNECTIONS)]
    for _ in range(8_000):
        one = min(range(CONNECTIONS), key=ends_ns.__getitem__)
        yield one, forwarded_ns[one], ends_ns[one]
        forwarded_ns[one] = ends_ns[one]
        ends_ns[one] += chance.randrange(took_ns // 2, took_ns * 2)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_the_charges_of_all_workers_are_those_of_one_process(workers: int) -> None:
    """Workers that share a broker charge what one process charges; without sharing they charge a multiple."""
    segment = new_segment(workers)
    alone = BrokerHandlerTime()
    brokers = [worker_of(segment, number).of(ADDRESS) for number in range(workers)]
    apart = [BrokerHandlerTime() for _ in range(workers)]
    one = [ConnectionHandlerTime(alone) for _ in range(CONNECTIONS)]
    many = [ConnectionHandlerTime(brokers[number % workers]) for number in range(CONNECTIONS)]
    without = [ConnectionHandlerTime(apart[number % workers]) for number in range(CONNECTIONS)]
    charged = [0.0, 0.0, 0.0]
    for number, (connection, forwarded_ns, now_ns) in enumerate(answers(workers, 2 * MS)):
        for at, times in enumerate((one, many, without)):
            charge_ns = times[connection].charge(METADATA, 300, forwarded_ns, now_ns, 0)
            charged[at] += charge_ns if number >= 4_000 else 0.0
    assert charged[1] == pytest.approx(charged[0], rel=0.03)
    assert charged[2] > 1.5 * charged[0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([METADATA, FETCH]), st.integers(0, 60 * MS), st.integers(0, 90 * MS)), min_size=1)
)
def test_the_load_is_that_of_one_process_to_the_last_bit(asked: Sequence[tuple[int, Work, int, int]]) -> None:
    """After each response its worker knows exactly the load that one process would know."""
    segment = new_segment(4)
    alone = BrokerHandlerTime()
    brokers = [worker_of(segment, number).of(ADDRESS) for number in range(4)]
    now_ns = START_NS
    for worker, work, apart_ns, took_ns in asked:
        now_ns += apart_ns
        alone.saw(work, took_ns, now_ns)
        brokers[worker].saw(work, took_ns, now_ns)
        assert brokers[worker].load == alone.load
    assert sum(one.elapsed_ns for one in brokers) == alone.elapsed_ns


def test_who_only_waits_learns_from_others_what_a_small_request_costs() -> None:
    """A worker with Fetches only uses the cost of a small request that another worker measured."""
    segment = new_segment(2)
    prompt, waiting = (ConnectionHandlerTime(worker_of(segment, number).of(ADDRESS)) for number in range(2))
    now_ns = START_NS
    for _ in range(1_000):
        now_ns += 10 * MS
        prompt.charge(METADATA, 300, now_ns, now_ns + 100 * US, 0)
        waiting.charge(FETCH, 300, now_ns, now_ns + 5 * MS, 0)
    assert prompt.broker.unit_ns < 0.3 * UNIT_NS
    assert waiting.broker.unit_ns == pytest.approx(prompt.broker.unit_ns, rel=1 - DOWN)


def test_a_worker_that_died_loads_a_broker_no_more() -> None:
    """A dead worker's load decays as in one process, its successor continues, and its unfinished write is ignored."""
    segment = new_segment(2)
    died, other = (worker_of(segment, number).of(ADDRESS) for number in range(2))
    alone = BrokerHandlerTime()
    now_ns = START_NS
    for turn in range(40):
        now_ns += LOAD_WINDOW_NS
        if turn < 20:
            died.saw(METADATA, 5 * LOAD_WINDOW_NS, now_ns)
            alone.saw(METADATA, 5 * LOAD_WINDOW_NS, now_ns)
        if turn == 20:
            segment.exit(0, 0)
            cells = SharedUsage(segment, 0).claim_broker(ADDRESS)
            assert cells is not None
            cells[DUE] = now_ns + SECOND  # a write that the worker did not finish
        other.saw(METADATA, LOAD_WINDOW_NS, now_ns)
        alone.saw(METADATA, LOAD_WINDOW_NS, now_ns)
        assert other.load == alone.load
    successor = worker_of(segment, 0).of(ADDRESS)
    successor.saw(METADATA, LOAD_WINDOW_NS, now_ns)
    alone.saw(METADATA, LOAD_WINDOW_NS, now_ns)
    assert successor.load == alone.load == pytest.approx(1, rel=0.01)


def test_without_a_row_a_worker_counts_alone_and_asks_again() -> None:
    """A worker without a row keeps its own load, asks again after a second, and then publishes it."""
    segment = new_segment(2)
    claims = iter([None, None, SharedUsage(segment, 0).claim_broker(ADDRESS)])
    broker, alone = SharedBrokerHandlerTime(lambda: next(claims), 0), BrokerHandlerTime()
    for now_ns in (START_NS, START_NS + LOAD_WINDOW_NS, START_NS + CLAIM_INTERVAL_NS, START_NS + CLAIM_INTERVAL_NS + LOAD_WINDOW_NS):
        for one in (broker, alone):
            one.saw(METADATA, 5 * LOAD_WINDOW_NS, now_ns)
        assert broker.load == alone.load
    assert next(claims, "all asked for") == "all asked for"


def test_brokers_have_rows_of_their_own_until_all_are_taken() -> None:
    """Each address has one row in all workers until the rows are used up."""
    segment = new_segment(2)
    usages = [SharedUsage(segment, number) for number in range(2)]
    for port in range(ROWS_MAX):
        first, second = (usage.claim_broker(("broker", port)) for usage in usages)
        assert first is not None
        assert second is not None
        assert first[0] == 0
        first[0] = port + 1
        assert second[0] == port + 1
    assert usages[0].claim_broker(("broker", ROWS_MAX)) is None
    known = usages[0].claim_broker(("broker", 7))
    assert known is not None
    assert known[0] == 8
