"""Requests and answers whose size leads to a given throttle time.

A new group measures over ten windows, so at 1,000 bytes per second each byte beyond 10,000 adds a millisecond, as long as whole seconds
have passed since its first record and none of its samples has expired.
"""

from tests.support.frames.kafka_frames import CLIENT_ID, fetched, produce
from tests.support.memory.memory_connection import Peer, ProxyFixture

BOUND = 1_000.0
FREE_BYTES = 10_000
PRODUCE_VERSION = 7
FETCH_VERSION = 11
"""Neither version is flexible, so every size is possible."""


def produce_of(size_bytes: int, correlation_id: int, *, acks: int = 1, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a Produce request that counts `size_bytes`, its frame without the length field."""
    overhead = len(produce(correlation_id, size=0, acks=acks, version=PRODUCE_VERSION, client_id=client_id)) - 4
    return produce(correlation_id, size=size_bytes - overhead, acks=acks, version=PRODUCE_VERSION, client_id=client_id)


def fetched_of(size_bytes: int, correlation_id: int, *, throttle_ms: int = 0) -> bytes:
    """Return a Fetch answer that counts `size_bytes`, its frame without the length field."""
    overhead = len(fetched(correlation_id, size=0, version=FETCH_VERSION)) - 4
    return fetched(correlation_id, size=size_bytes - overhead, version=FETCH_VERSION, throttle_ms=throttle_ms)


def produce_for(throttle_ms: int, correlation_id: int, *, acks: int = 1, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a Produce request that leads to `throttle_ms` as the first of its group."""
    return produce_of(FREE_BYTES + throttle_ms, correlation_id, acks=acks, client_id=client_id)


def fetched_for(throttle_ms: int, correlation_id: int) -> bytes:
    """Return a Fetch answer that leads to `throttle_ms` as the first of its group."""
    return fetched_of(FREE_BYTES + throttle_ms, correlation_id)


def pipelined(proxy: ProxyFixture, peer: Peer, *frames: bytes) -> list[int]:
    """Send a pipeline under a large quota, then set the quota to 1,000 bytes per second: otherwise less would be in flight at the
    verdict.
    """
    proxy.set_quota(produce=1e9)
    forwarded = peer.sends(*frames)
    proxy.set_quota(produce=BOUND)
    return forwarded
