"""A throttle by controller mutations that a closed connection has not served is taken over in any worker.

The buckets are in the supervisor, so the row of such a group has nothing but throttles.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.mode import Mode
from proxy.session.throttle.departed_throttles import longest_throttle, take_throttle
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import FULL_RETRY_MS, SharedUsage
from proxy.workers.asked_bucket import Asked, Buckets, asked_buckets
from quota.entity import UNLIMITED, ClientQuotaType
from tests.support.frames.topic_frames import create
from tests.support.memory.bucket_questions import BucketQuestions
from tests.support.memory.departed_pair import DepartedPair
from tests.support.memory.shared_workers import TAGS, new_segment
from tests.support.memory.topic_model import TopicModel
from tests.support.memory.worker_proxies import WorkerProxies
from tests.support.processes.segment_children import throttles_locked

NOW_MS = 60_000
OTHER = (1).to_bytes(16, "little")
KINDS = st.sampled_from(["leave", "grow", "take", "restart", "publish"])
STEPS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), KINDS, st.integers(1, 2_000)))


class Worker:
    """One life of a worker with one group of controller mutations."""

    def __init__(self, segment: Segment, number: int, bound: float = 1.0) -> None:
        self.usage = SharedUsage(segment, number)
        self.make = asked_buckets(BucketQuestions(Buckets()), self.usage)
        self.group: Asked = self.make(TAGS, bound)


def two_workers(rows_max: int = 16) -> tuple[Segment, Worker, Worker]:
    """Return a segment with two workers."""
    segment = new_segment(2, rows_max)
    return segment, Worker(segment, 0), Worker(segment, 1)


def is_free(segment: Segment, now_ms: int) -> bool:
    """Whether another group would get the only row; the row is not claimed after it."""
    row = segment.claim(OTHER, 0, now_ms)
    if row >= 0:
        segment.release(row, 0)
    return row >= 0


@given(STEPS, st.integers(1, 2**40))
def test_they_are_those_of_one_process(steps: list[tuple[int, int, str, int]], now_ms: int) -> None:
    """Workers that leave and take over throttles in any order, and are restarted, find the same ones as a single process."""
    segment = new_segment(3)
    workers = [Worker(segment, number) for number in range(3)]
    pair = DepartedPair()
    for step_ms, number, kind, throttle_ms in steps:
        now_ms += step_ms
        group = workers[number].group
        match kind:
            case "restart":
                workers[number] = Worker(segment, number)
            case "publish":
                workers[number].usage.publish_all(now_ms)
            case "take":
                pair.take(group, now_ms)
            case _:
                pair.leave(group, throttle_ms, now_ms, grows=kind == "grow")
        assert [worker.group.departed_until(now_ms) for worker in workers] == [pair.alone.longest_until_ms(now_ms)] * 3


def test_a_group_whose_connections_leave_no_throttle_has_no_row() -> None:
    """Charging a bucket takes no row, and neither does a look for throttles in a group without a bound."""
    segment, worker, _ = two_workers(rows_max=1)
    worker.group.begin(5.0, NOW_MS, strict=False)
    worker.group.record_permissive(5.0, NOW_MS)
    assert longest_throttle(worker.make(TAGS, UNLIMITED), NOW_MS) is None
    assert is_free(segment, NOW_MS)
    assert longest_throttle(worker.group, NOW_MS) is None
    assert not is_free(segment, NOW_MS)


def test_a_removed_group_gives_its_row_up() -> None:
    """The row of a removed group goes to another group when its last throttle is over, and not before."""
    segment, worker, _ = two_workers(rows_max=1)
    worker.group.leave_throttle(NOW_MS + 9_000, NOW_MS)
    worker.group.leave()
    assert [is_free(segment, NOW_MS + after_ms) for after_ms in (8_999, 9_000)] == [False, True]
    assert take_throttle(worker.group, NOW_MS + 9_000) is None, "a removed group claims no row"
    assert is_free(segment, NOW_MS + 9_000)


def test_types_of_quotas_have_rows_of_their_own() -> None:
    """A throttle of a mutation group is not one of the byte group with the same tags."""
    _, worker, other = two_workers()
    worker.group.leave_throttle(9_000, 1)
    assert other.usage.of_scope("cluster").maker(ClientQuotaType.PRODUCE)(TAGS, 1.0).departed_until(2) == 0


def test_while_no_row_is_free_a_worker_keeps_its_throttles() -> None:
    """Without a row, connections of the same worker take the throttles; as soon as a row is free, those of other workers do."""
    segment, first, second = two_workers(rows_max=1)
    row = segment.claim(OTHER, 1, NOW_MS)
    first.group.leave_throttle(NOW_MS + 9_000, NOW_MS)
    first.group.leave_throttle(NOW_MS + 8_000, NOW_MS)
    assert [second.group.departed_until(NOW_MS), first.group.take_throttle(NOW_MS)] == [0, NOW_MS + 9_000]
    segment.release(row, 1)
    for after_ms in range(10, FULL_RETRY_MS + 110, 100):
        first.usage.publish_all(NOW_MS + after_ms)
    now_ms = NOW_MS + FULL_RETRY_MS
    assert [second.group.take_throttle(now_ms), first.group.take_throttle(now_ms)] == [NOW_MS + 8_000, 0]


def test_while_another_process_changes_them_none_is_lost() -> None:
    """A throttle left while another process holds the row's lock is published later, and new connections wait meanwhile."""
    segment, first, second = two_workers()
    first.group.leave_throttle(8_000, 1)
    with throttles_locked(segment):
        second.group.leave_throttle(9_000, 2)
        second.usage.publish_all(12)
        assert [first.group.take_throttle(13), first.group.take_throttle(13), second.group.departed_until(13)] == [8_000, 8_000, 9_000]
    second.usage.publish_all(22)
    assert [first.group.take_throttle(23) for _ in range(3)] == [9_000, 8_000, 0]


def test_a_group_with_another_parent_keeps_them() -> None:
    """A group that replaces another one under a new parent has the row, and each throttle is taken over once."""
    segment, first, second = two_workers(rows_max=1)
    first.group.leave_throttle(9_000, 1)
    made = first.make(TAGS, 1.0, first.make({"group": "team"}, 1.0), **first.group.like())
    first.group.copy_to(made)
    assert [second.group.departed_until(2), made.take_throttle(2), second.group.take_throttle(2)] == [9_000, 9_000, 0]
    second.group.leave()
    made.leave()
    assert is_free(segment, 60_000)


def test_a_replacing_group_publishes_what_could_not_be_published() -> None:
    """Throttles that waited for a row in the replaced group are published by the group that replaces it."""
    segment, first, second = two_workers(rows_max=1)
    row = segment.claim(OTHER, 1, NOW_MS)
    first.group.leave_throttle(NOW_MS + 9_000, NOW_MS)
    made = first.make(TAGS, 1.0, first.make({"group": "team"}, 1.0), **first.group.like())
    first.group.copy_to(made)
    segment.release(row, 1)
    first.usage.publish_all(NOW_MS + FULL_RETRY_MS)
    assert second.group.take_throttle(NOW_MS + FULL_RETRY_MS) == NOW_MS + 9_000


# --- a client that closes its connections in order not to wait

RATE = 1.0
TOPICS = 20
BURST = 11
ATTACK_MS = 60_000


def create_old(number: int) -> bytes:
    """Return a request for 20 topics by a client that knows no error for a refused topic."""
    return create(number, {f"t{number}": TOPICS}, version=5)


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_who_comes_back_to_another_worker_waits(workers: int, mode: Mode, is_answered: bool) -> None:
    """A client that is throttled, leaves and reconnects to the other worker waits as long as with a single process."""
    with WorkerProxies(workers, mutation=RATE, mode=mode) as proxies:
        peer = proxies.connect()
        assert peer.sends(create_old(1)) == [1]
        if is_answered:
            peer.broker.arrive(TopicModel().answer(create_old(1)))
        peer.connection.client.connection_lost(ConnectionResetError())
        other = proxies.connect()
        assert other.sends(create_old(2)) == []
        wait_ms = round((TOPICS - BURST) / RATE * 1_000)
        proxies.wait(wait_ms - 1)
        assert other.forwarded() == []
        proxies.wait(1)
        assert other.forwarded() == [2]


def passed_by_leaving(workers: int, mode: Mode) -> int:
    """Create topics, close and reconnect to the next worker; return the number of topics forwarded in 60 s."""
    passed = 0
    with WorkerProxies(workers, mutation=RATE, mode=mode) as proxies:
        end_ms = proxies.now_ms + ATTACK_MS
        while proxies.now_ms < end_ms:
            peer = proxies.connect()
            passed += TOPICS * len(peer.sends(create_old(1)))
            proxies.wait(500)
            peer.connection.client.connection_lost(ConnectionResetError())
        return passed


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
def test_who_goes_from_worker_to_worker_gets_no_more(mode: Mode) -> None:
    """A client that reconnects to the next worker after each request creates no more topics than with a single process."""
    assert passed_by_leaving(4, mode) <= passed_by_leaving(1, mode)
