"""The latency of brokers is counted while traffic passes."""

from protocol.api_keys import ApiKey
from proxy.telemetry.latency import SHIFT
from tests.support.frames.kafka_frames import answered, plain
from tests.support.memory.memory_connection import ProxyFixture

VERSION = 2


def test_an_answer_is_counted_by_the_time_since_its_request_left(proxy: ProxyFixture) -> None:
    """The latency of each response is counted by API from the moment its own request was forwarded."""
    peer, other = proxy.connect(), proxy.connect()
    peer.sends(plain(1, ApiKey.LIST_OFFSETS, VERSION))
    proxy.wait(100)
    peer.sends(plain(2, ApiKey.LIST_OFFSETS, VERSION))
    other.sends(plain(7, ApiKey.LIST_OFFSETS, VERSION, "another"))
    proxy.wait(3)
    peer.broker.arrive(answered(1, ApiKey.LIST_OFFSETS, VERSION) + answered(2, ApiKey.LIST_OFFSETS, VERSION))
    other.broker.arrive(answered(7, ApiKey.LIST_OFFSETS, VERSION))
    rows = proxy.counters.latencies.rows
    assert {key for key, row in rows.items() if any(row)} == {ApiKey.LIST_OFFSETS}
    assert proxy.counters.latencies.by_broker() == {proxy.scope.label: rows[ApiKey.LIST_OFFSETS]}
    found = {at: count for at, count in enumerate(rows[ApiKey.LIST_OFFSETS]) if count}
    assert found == {(103_000_000 >> SHIFT).bit_length(): 1, (3_000_000 >> SHIFT).bit_length(): 2}
