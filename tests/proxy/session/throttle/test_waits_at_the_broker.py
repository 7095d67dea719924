"""A Fetch that a quota limits waits at the broker for a second at most: meanwhile others cannot use what it may return."""

import struct

import pytest

from protocol.request_head import read_request_head
from proxy.enforcement.groups.group_factory import PlainGroups
from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.factory import PacedGroups
from proxy.session.request_context import FETCH_WAIT_MS_MAX
from tests.support.frames.kafka_frames import fetch, share_fetch, split
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import BOUND, FETCH_VERSION, fetched_of

FACTORIES = {"window": PlainGroups(), "paced": PacedGroups(1_000)}
DAY_MS = 86_400_000


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("pacing", FACTORIES)
@pytest.mark.parametrize("version", range(1, 19))
def test_a_long_wait_is_lowered(pacing: str, mode: Mode, version: int) -> None:
    """In enforcing modes `max_wait_ms` above a second is lowered to it, on each of several fetches; in observe mode it stays."""
    with ProxyFixture(fetch=BOUND, factories=FACTORIES[pacing]) as proxy:
        proxy.enforcement.mode = mode
        peer = proxy.connect()
        for number in range(3):
            peer.client.arrive(fetch(number, version=version, max_bytes=100, max_wait_ms=DAY_MS))
            lowered_ms = DAY_MS if mode is Mode.OBSERVE else FETCH_WAIT_MS_MAX
            assert peer.broker.take() == fetch(number, version=version, max_bytes=100, max_wait_ms=lowered_ms)
            peer.answers(fetched_of(80, number) if version == FETCH_VERSION else empty(number, version))


def empty(number: int, version: int) -> bytes:
    """Return a response to a Fetch that has nothing behind its correlation id but zeros."""
    return struct.pack(">ii", 60, number) + bytes(56)


@pytest.mark.parametrize("pacing", FACTORIES)
def test_of_a_share_fetch_too(pacing: str) -> None:
    """`max_wait_ms` of a ShareFetch is lowered, too."""
    with ProxyFixture(fetch=BOUND, factories=FACTORIES[pacing]) as proxy:
        peer = proxy.connect()
        request = bytearray(share_fetch(1, max_bytes=100))
        head = read_request_head(request, 0, len(request) - 4)
        assert head is not None
        assert head.max_wait_ms_at is not None
        struct.pack_into(">i", request, head.max_wait_ms_at, DAY_MS)
        peer.client.arrive(bytes(request))
        struct.pack_into(">i", request, head.max_wait_ms_at, FETCH_WAIT_MS_MAX)
        assert peer.broker.take() == request


@pytest.mark.parametrize("pacing", FACTORIES)
@pytest.mark.parametrize(("wait_ms", "bound"), [(FETCH_WAIT_MS_MAX, BOUND), (DAY_MS, float("inf"))])
def test_other_waits_stay(pacing: str, wait_ms: int, bound: float) -> None:
    """A Fetch that waits for a second, and one that no quota limits, are forwarded unchanged."""
    with ProxyFixture(fetch=bound, factories=FACTORIES[pacing]) as proxy:
        peer = proxy.connect()
        request = fetch(1, max_bytes=100, max_wait_ms=wait_ms)
        peer.client.arrive(request)
        assert peer.broker.take() == request


@pytest.mark.parametrize("pacing", FACTORIES)
def test_a_client_cannot_hold_what_others_want(pacing: str) -> None:
    """Fetches without a response for a day, of a client that has got much before, keep another client of its group waiting for a second."""
    with ProxyFixture(fetch=BOUND, factories=FACTORIES[pacing]) as proxy:
        honest, *hostile = [proxy.connect(host=f"10.0.0.{number}") for number in (1, 2, 2)]
        for peer, size in (honest, 300), *((one, 4_950) for one in hostile):
            peer.asks(fetch(1, version=FETCH_VERSION), fetched_of(size, 1))
            proxy.wait(30_000)
        for peer in hostile:
            keep_waiting(proxy, peer, 2)
        proxy.wait(0)
        assert honest.sends(fetch(2, version=FETCH_VERSION, max_bytes=300)) == []
        proxy.wait(FETCH_WAIT_MS_MAX + 20)
        assert honest.forwarded() == [2]


def keep_waiting(proxy: ProxyFixture, peer: Peer, number: int) -> None:
    """Send a Fetch, and answer it with nothing when it has waited as long as the broker may keep it; then send the next one."""

    def answer() -> None:
        frames = split(peer.broker.take())
        if not frames:
            proxy.loop.call_later(0.01, answer)
            return
        (size,) = struct.unpack_from(">i", frames[0])
        head = read_request_head(frames[0], 0, size)
        assert head is not None
        assert head.max_wait_ms is not None
        proxy.loop.call_later(head.max_wait_ms / 1_000, expire)

    def expire() -> None:
        peer.broker.arrive(fetched_of(80, number))
        keep_waiting(proxy, peer, number + 1)

    peer.client.arrive(fetch(number, version=FETCH_VERSION, max_wait_ms=DAY_MS))
    answer()
