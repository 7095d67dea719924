"""A connection of one worker is judged with what another worker records under the same quota."""

from collections.abc import Iterator

import pytest

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from tests.support.frames.kafka_frames import fetch, produced
from tests.support.memory.memory_connection import BROKER, ProxyFixture
from tests.support.memory.shared_workers import TAGS, new_segment
from tests.support.memory.verdicts import BOUND, FETCH_VERSION, PRODUCE_VERSION, produce_of
from tests.support.memory.worker_proxies import publish_on_time


class Workers:
    """The proxy of worker 0, and the groups of worker 1 by quota type."""

    def __init__(self) -> None:
        segment = new_segment(2)
        self.usage, self.other = SharedUsage(segment, 0), SharedUsage(segment, 1)
        scope = self.other.of_scope(f"{BROKER[0]}:{BROKER[1]}")
        self.produce: EnforcedGroup = scope.maker(ClientQuotaType.PRODUCE)(TAGS, BOUND)
        self.fetch: EnforcedGroup = scope.maker(ClientQuotaType.FETCH)(TAGS, BOUND)


@pytest.fixture
def workers() -> Workers:
    """Return two workers that share one segment."""
    return Workers()


@pytest.fixture
def proxy(workers: Workers) -> Iterator[ProxyFixture]:
    """Yield the proxy of worker 0, in which client-id etl may produce and fetch 1,000 bytes per second; its timer runs."""
    with ProxyFixture(produce=BOUND, fetch=BOUND, factories=workers.usage) as proxy:
        publish_on_time(workers.usage, proxy.loop)
        yield proxy


def test_what_another_worker_recorded_holds_an_answer(workers: Workers, proxy: ProxyFixture) -> None:
    """The response to the first small request is held when the other worker has filled the window."""
    workers.produce.record(10_000, proxy.now_ms)
    peer = proxy.connect()
    peer.sends(produce_of(1_000, 1))
    assert peer.answers(produced(1, version=PRODUCE_VERSION)) == []
    proxy.wait(1_000)
    assert peer.delivered() == [1]


def test_what_is_used_here_is_known_there(workers: Workers, proxy: ProxyFixture) -> None:
    """The timer publishes to the other worker what a connection of this worker produced."""
    peer = proxy.connect()
    for number in (1, 2, 3):
        peer.sends(produce_of(1_000, number))
        peer.answers(produced(number, version=PRODUCE_VERSION))
    proxy.wait(10)
    assert workers.produce.record(0, proxy.now_ms) == 0
    assert workers.produce.recorded_total == proxy.usages.get("ANONYMOUS", "etl").produce_bytes


def test_a_fetch_under_way_in_another_worker_keeps_one_here(workers: Workers, proxy: ProxyFixture) -> None:
    """A Fetch waits while a Fetch in flight in the other worker may fill the window, and is forwarded after it brought little."""
    workers.fetch.pending += 10_000
    workers.other.publish_all(proxy.now_ms)
    peer = proxy.connect()
    assert peer.sends(fetch(1, version=FETCH_VERSION, client_id="etl")) == []
    workers.fetch.pending -= 10_000
    workers.other.publish_all(proxy.now_ms)
    proxy.wait(10_000)
    assert peer.forwarded() == [1]
