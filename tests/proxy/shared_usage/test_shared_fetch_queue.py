"""Waiting fetches of a group share one queue across workers and pass as much as in a single process."""

from collections import Counter

import pytest

from proxy.enforcement.mode import Mode
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.shared_usage.segment import HEARTBEAT_AGE_MAX_MS
from proxy.shared_usage.shared_groups import SHARE_MS, Shared
from tests.support.frames.kafka_frames import fetch
from tests.support.memory.fetch_load import passed_each_second, worst_bytes
from tests.support.memory.memory_connection import Peer
from tests.support.memory.shared_workers import SharedWorker, new_segment
from tests.support.memory.verdicts import FETCH_VERSION, fetched_of
from tests.support.memory.worker_proxies import WorkerProxies

BOUND = 100_000
"""Large enough that the headers of the responses hardly matter."""
WINDOW_S = 10
BEGIN_S = 15
LOAD_S = 130


@pytest.mark.parametrize(("connections", "mode"), [(1, Mode.MUTE), (16, Mode.DELAY), (40, Mode.MUTE)])
def test_workers_pass_what_one_process_does(connections: int, mode: Mode) -> None:
    """Several workers pass as many bytes as one process within 2 %, and at most a tenth more in the worst ten seconds."""
    alone = passed_each_second(WorkerProxies(1, fetch=float(BOUND), mode=mode), connections, BOUND, LOAD_S)
    for workers in (2, 4):
        shared = passed_each_second(WorkerProxies(workers, fetch=float(BOUND), mode=mode), connections, BOUND, LOAD_S)
        assert shared[-1] == pytest.approx(alone[-1], rel=0.02)
        assert worst_bytes(shared, WINDOW_S, BEGIN_S) <= 1.1 * worst_bytes(alone, WINDOW_S, BEGIN_S)


def ask(number: int) -> bytes:
    """Return a Fetch request with the largest max_bytes."""
    return fetch(number, version=FETCH_VERSION)


def full_proxies(proxies: WorkerProxies, waiting: int) -> list[Peer]:
    """Fill the window of 10,000 bytes with three responses; return connections of the workers in turn that wait with one Fetch each."""
    first = proxies.connect()
    for number in (1, 2, 3):
        first.asks(ask(number), fetched_of(3_333, number))
    proxies.wait(2 * SHARE_MS)
    peers = []
    for _ in range(waiting):
        peers.append(proxies.connect())
        assert peers[-1].sends(ask(1)) == []
        proxies.wait(1)
    return peers


def test_fetches_go_in_the_order_in_which_they_were_read() -> None:
    """Waiting fetches are forwarded in the order in which they were read, across workers."""
    with WorkerProxies(3, fetch=1_000.0) as proxies:
        peers = full_proxies(proxies, 9)
        turns = []
        for _ in range(2_300):
            proxies.wait(10)
            for at, peer in enumerate(peers):
                if peer.forwarded():
                    turns.append(at)
                    peer.broker.arrive(fetched_of(3_333, 1))
        assert turns == list(range(9))[: len(turns)]
        assert len(turns) >= 6


def test_room_that_is_made_in_one_worker_is_taken_in_another() -> None:
    """A small response in one worker lets the Fetch that waits in another worker go within 20 ms."""
    with WorkerProxies(2, fetch=1_000.0) as proxies:
        early, late = proxies.connect(), proxies.connect()
        assert early.sends(ask(1)) == [1]
        proxies.wait(2 * SHARE_MS)
        assert late.sends(ask(1)) == []
        proxies.wait(500)
        assert late.forwarded() == []
        early.answers(fetched_of(100, 1))
        proxies.wait(2 * SHARE_MS)
        assert late.forwarded() == [1]


def test_a_fetch_waits_behind_those_of_other_workers() -> None:
    """A small Fetch does not overtake a larger one that waits in another worker."""
    with WorkerProxies(2, fetch=1_000.0) as proxies:
        (large,) = full_proxies(proxies, 1)
        proxies.wait(SHARE_MS)
        small = proxies.connect()
        assert small.sends(fetch(1, version=FETCH_VERSION, max_bytes=1)) == []
        proxies.wait(11_000)
        assert (large.forwarded(), small.forwarded()) == ([1], [1])


@pytest.mark.parametrize("end", ["dead", "asleep"])
def test_no_fetch_waits_behind_a_worker_that_does_nothing(end: str) -> None:
    """A Fetch does not wait behind those of a worker that has died or has not reacted for a while."""
    segment = new_segment(2)
    gone, here = (SharedWorker(segment, number, 1_000.0, 0) for number in (0, 1))
    gone.record(10_000, 0)
    first, second = FetchAdmission(), FetchAdmission()
    assert not first.admits(gone.group, 500, 5, 5, has_throttle_round=False)
    assert not second.admits(here.group, 500, 6, 6, has_throttle_round=False)
    segment.store_heartbeat(0, 20_000)
    assert not second.admits(here.group, 500, 20_000, 6, has_throttle_round=False)
    told: list[int] = []
    second.notify = lambda: told.append(now_ms)
    if end == "dead":
        segment.exit(0, 0)
    for now_ms in range(20_010, 20_000 + 2 * HEARTBEAT_AGE_MAX_MS, SHARE_MS):
        here.publish(now_ms)
    assert told == [20_010 if end == "dead" else 20_000 + HEARTBEAT_AGE_MAX_MS]
    assert second.admits(here.group, 500, told[0], 6, has_throttle_round=False)


def test_a_group_with_a_waiting_fetch_is_published_each_10_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a Fetch waits and little of the window is used, the group is published at most once for each of its two intervals."""
    published = []
    publish = Shared.publish
    monkeypatch.setattr(Shared, "publish", lambda group, now_ms: (published.append(now_ms), publish(group, now_ms))[1])
    with WorkerProxies(2, fetch=1_000.0) as proxies:
        peers = [proxies.connect() for _ in range(8)]
        for peer, size_bytes in zip(peers[::2], (9_000, 9_000, 100, 100), strict=True):  # all at one worker
            peer.asks(ask(1), fetched_of(size_bytes, 1))
            proxies.wait(12_000 if size_bytes > 100 else 1_500)
        assert peers[0].sends(ask(2)) == [2]  # in flight, about as large as the last one
        assert peers[2].sends(ask(2)) == []
        published.clear()
        proxies.wait(2_000)
        by_ms = Counter(published)
        assert max(by_ms.values()) <= 3  # in either worker after 10 ms, and in this one after 100 ms
        assert len(by_ms) >= 150
