"""In `observe` nothing is held, changed or paused, and verdicts and metrics are computed as in an enforcing mode."""

import pytest

from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import fetch, plain, produced, share_fetch, share_fetched
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_for, pipelined, produce_for, produce_of


@pytest.fixture(autouse=True)
def _observe(proxy: ProxyFixture) -> None:
    proxy.enforcement.mode = Mode.OBSERVE


def test_every_byte_passes_as_it_came(proxy: ProxyFixture) -> None:
    """Requests and responses far over quota, also with acks=0, pass unchanged and at once."""
    peer = proxy.connect()
    requests = [produce_for(60_000, 1), produce_for(60_000, 2, acks=0), fetch(3, version=FETCH_VERSION), share_fetch(4), plain(5)]
    peer.client.arrive(b"".join(requests))
    assert peer.broker.take() == b"".join(requests)
    answers = [produced(1, version=PRODUCE_VERSION), fetched_for(60_000, 3), share_fetched(4, size=90_000)]
    peer.broker.arrive(b"".join(answers))
    assert peer.client.take() == b"".join(answers)
    assert peer.client.reading
    assert peer.broker.reading


def test_a_fetch_is_not_kept_back(proxy: ProxyFixture) -> None:
    """A Fetch of a group over quota is forwarded at once and unchanged."""
    peer = proxy.connect()
    peer.asks(fetch(1, version=FETCH_VERSION), fetched_for(60_000, 1))
    request = fetch(2, version=FETCH_VERSION, max_bytes=2**31 - 1)
    peer.client.arrive(request)
    assert peer.broker.take() == request


def test_the_arithmetic_runs(proxy: ProxyFixture) -> None:
    """The verdict, the histogram and the usage show the throttle time that an enforcing mode would have applied."""
    peer = proxy.connect()
    peer.asks(produce_for(60_000, 1), produced(1, version=PRODUCE_VERSION))
    (group,) = proxy.scope.produce.groups()
    assert [verdict.throttle_ms for verdict in group.verdicts] == [60_000]
    assert proxy.counters.throttles["Produce"].sum_ms == 60_000
    assert proxy.usages.get("ANONYMOUS", "etl").throttle_ms == {("Produce", "client-id=etl"): 60_000}


def test_what_a_mode_that_acts_would_count(proxy: ProxyFixture) -> None:
    """The same traffic leads to the same verdicts in `observe` and in `mute`."""
    totals = []
    for mode in (Mode.OBSERVE, Mode.MUTE):
        with ProxyFixture(produce=1_000.0, mode=mode) as other:
            peer = other.connect()
            assert pipelined(other, peer, *(produce_of(4_000, number) for number in range(1, 9))) == list(range(1, 9))
            peer.answers(*(produced(number, version=PRODUCE_VERSION) for number in range(1, 9)))
            (group,) = other.scope.produce.groups()
            totals.append([verdict.throttle_ms for verdict in group.verdicts])
    assert totals[0] == totals[1] != []
