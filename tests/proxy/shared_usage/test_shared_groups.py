"""Several workers share one quota: each unit is counted once in every worker, and verdicts are those of Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.groups.departed_throttles import DepartedThrottles
from proxy.enforcement.groups.fetch_queue import Place
from proxy.shared_usage.departed_rows import DEPARTED_MAX
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import LITTLE_PARTS, SHARE_LITTLE_MS, SHARE_MS
from quota.entity import UNLIMITED, ClientQuotaType
from tests.support.memory.shared_workers import SharedWorker, new_segment, replay

BOUND = 1_000.0
BOUNDS = st.sampled_from([0.0, 1.0, 100.0, BOUND, 5_000.0, 1e9, UNLIMITED])
STEPS_MS = st.one_of(st.integers(0, 25), st.integers(0, 1_500), st.sampled_from([10, 999, 1_000, 5_000, 10_999, 11_000, 12_001, 60_000]))
BACKWARDS_MS = st.one_of(STEPS_MS, STEPS_MS, st.integers(-1_500, 0))
COUNTS = ["record"] * 6 + ["unrecord", "predict_throttle", "publish", "pull", "bound"]
FETCHES = ["forward", "forward", "answered", "wait", "wait", "go"]
KINDS = st.sampled_from([*COUNTS, *FETCHES, "leave", "leave", "take", "kill", "end"])
EVENTS = st.lists(st.tuples(BACKWARDS_MS, KINDS, st.integers(0, 3), st.integers(0, 4_000)), max_size=60)
STARTS_MS = st.integers(1_000_000, 2**40)


class Fleet:
    """Workers that share one segment and may be restarted.

    Attributes:
        recorded: by worker, all that it recorded, without what was lost in a kill.
        under_way: by worker, the expected bytes of each Fetch in flight since its last start.
        waiting: by worker, the queue places of the fetches that wait since its last start.
        throttles: the throttles that closed connections left, as in a single process.
        taken: each throttle that a new connection took over, and the one it would take over in a single process.
        lives: all workers, also those before a restart.
    """

    def __init__(self, workers: int, bound: float, now_ms: int, quota_type: ClientQuotaType = ClientQuotaType.PRODUCE) -> None:
        self.segment = new_segment(workers)
        self.bound = bound
        self.quota_type = quota_type
        self.recorded = [0.0] * workers
        self.workers = [SharedWorker(self.segment, worker, bound, now_ms, quota_type=quota_type) for worker in range(workers)]
        self.lives = list(self.workers)
        self.under_way: list[list[int]] = [[] for _ in range(workers)]
        self.waiting: list[list[Place]] = [[] for _ in range(workers)]
        self.throttles = DepartedThrottles(throttles_max=DEPARTED_MAX)
        self.taken: list[tuple[int, int]] = []

    def play(self, events: list[tuple[int, str, int, int]], now_ms: int) -> int:
        """Apply the events; return the time after them."""
        for step_ms, kind, number, amount in events:
            now_ms += step_ms
            worker = self.workers[number % len(self.workers)]
            if kind in FETCHES:
                self._fetch(kind, worker, amount, now_ms)
            else:
                self._play(kind, worker, amount, now_ms)
        return now_ms

    def _fetch(self, kind: str, worker: SharedWorker, amount: int, now_ms: int) -> None:
        under_way, waiting, group = self.under_way[worker.worker], self.waiting[worker.worker], worker.group
        match kind:
            case "forward":
                group.pending += amount
                under_way.append(amount)
            case "answered" if under_way:
                group.pending -= under_way.pop(0)
            case "wait":
                if group.fetch_queue is None:
                    group.fetch_queue = group.new_fetch_queue()
                waiting.append(group.fetch_queue.join(now_ms, lambda: None, now_ms))
            case "go" if waiting and group.fetch_queue is not None:
                group.fetch_queue.leave(waiting.pop(0))

    def _play(self, kind: str, worker: SharedWorker, amount: int, now_ms: int) -> None:
        match kind:
            case "leave":
                worker.group.leave_throttle(now_ms + amount, now_ms)
                self.throttles.leave(now_ms + amount, now_ms)
            case "take":
                self.taken.append((worker.group.take_throttle(now_ms), self.throttles.take(now_ms)))
            case "record":
                worker.record(amount, now_ms)
                self.recorded[worker.worker] += amount
            case "unrecord":
                worker.record_unchecked(-amount, now_ms)
                self.recorded[worker.worker] -= amount
            case "predict_throttle":
                worker.would_throttle_ms(amount, now_ms)
            case "bound":
                worker.update_bound(amount)
            case "publish":
                worker.publish(now_ms)
            case "pull":
                worker.pull(now_ms)
            case "end":
                worker.publish(now_ms)
                self._restart(worker, now_ms)
            case "kill":  # usage that was not published is lost
                own = worker.group.recorded_total - sum(worker.remote)
                self.recorded[worker.worker] -= own - worker.published
                self._restart(worker, now_ms)

    def _restart(self, worker: SharedWorker, now_ms: int) -> None:
        self.workers[worker.worker] = life = SharedWorker(self.segment, worker.worker, self.bound, now_ms, quota_type=self.quota_type)
        self.lives.append(life)
        self.under_way[worker.worker].clear()
        self.waiting[worker.worker].clear()

    def settle(self, now_ms: int) -> None:
        """Let every worker publish and then read what the others published."""
        for worker in (*self.workers, *self.workers):
            worker.publish(now_ms)
        for worker in self.workers:
            worker.pull(now_ms)


@given(st.integers(2, 4), BOUNDS, EVENTS, STARTS_MS)
def test_all_know_the_same_total(workers: int, bound: float, events: list[tuple[int, str, int, int]], start_ms: int) -> None:
    """After all workers have published, each knows the sum of what all recorded, also after restarts and pauses."""
    fleet = Fleet(workers, bound, start_ms)
    now_ms = fleet.play(events, start_ms)
    fleet.settle(now_ms)
    assert [worker.known for worker in fleet.workers] == [sum(fleet.recorded)] * workers
    for worker in fleet.workers:
        for other in fleet.workers:
            if other is not worker:
                assert worker.remote[other.worker] + worker.skipped[other.worker] == fleet.recorded[other.worker]


@given(st.integers(2, 4), EVENTS, STARTS_MS)
def test_all_know_what_is_under_way_and_what_waits(workers: int, events: list[tuple[int, str, int, int]], start_ms: int) -> None:
    """All workers know the same bytes in flight and the same first Fetch in the queue, also after restarts and pauses."""
    fleet = Fleet(workers, BOUND, start_ms)
    now_ms = fleet.play(events, start_ms)
    fleet.settle(now_ms)
    assert [worker.group.pending for worker in fleet.workers] == [sum(map(sum, fleet.under_way))] * workers
    count = sum(map(len, fleet.waiting))
    queues = [worker.group.fetch_queue for worker in fleet.workers]
    assert [0 if queue is None else len(queue) for queue in queues] == [count] * workers
    first = [
        place[0]
        for queue, waiting in zip(queues, fleet.waiting, strict=True)
        for place in waiting
        if queue is not None and queue.is_first(place, now_ms)
    ]
    assert first == ([min(place[0] for waiting in fleet.waiting for place in waiting)] if count else [])


@given(st.integers(2, 4), EVENTS, STARTS_MS)
def test_all_know_the_throttles_of_departed_connections(workers: int, events: list[tuple[int, str, int, int]], start_ms: int) -> None:
    """A new connection takes over the same throttle as in a single process, in whichever worker."""
    fleet = Fleet(workers, BOUND, start_ms)
    now_ms = fleet.play(events, start_ms)
    left = fleet.throttles.longest_until_ms(now_ms)
    assert [worker.group.departed_until(now_ms) > now_ms for worker in fleet.workers] == [left > 0] * workers
    fleet.play([(0, "take", number, 0) for number in range(len(events) + 1)], now_ms)
    assert [taken for taken, _ in fleet.taken] == [expected for _, expected in fleet.taken]


@given(st.integers(2, 4), BOUNDS, EVENTS, STARTS_MS)
def test_a_plain_group_gives_the_same_verdicts(workers: int, bound: float, events: list[tuple[int, str, int, int]], start_ms: int) -> None:
    """A plain `QuotaGroup` that replays a worker's records gives the same verdicts to the last bit."""
    fleet = Fleet(workers, bound, start_ms)
    fleet.play(events, start_ms)
    for life in fleet.lives:
        assert replay(bound, life.steps) == [step.answer for step in life.steps]


@given(st.lists(st.tuples(STEPS_MS, st.integers(0, 1), st.integers(0, 10**10)), max_size=40))
def test_request_time_is_shared_to_the_nanosecond(events: list[tuple[int, int, int]]) -> None:
    """No nanosecond of request time is lost on its way through the segment."""
    segment = new_segment(2)
    workers = [SharedWorker(segment, worker, 1e9, 0, quota_type=ClientQuotaType.REQUEST) for worker in range(2)]
    now_ms = 0
    recorded = [0, 0]
    for step_ms, worker, elapsed_ns in events:
        now_ms += step_ms
        workers[worker].record(elapsed_ns * 1e-7, now_ms)
        recorded[worker] += elapsed_ns
    for worker in (0, 1, 0, 1):
        workers[worker].pull(now_ms)
    for worker in (0, 1):
        other = 1 - worker
        assert round((workers[worker].remote[other] + workers[worker].skipped[other]) * 1e7) == recorded[other]
        assert replay(1e9, workers[worker].steps) == [step.answer for step in workers[worker].steps]


def known_of_the_other(amount: float, until_ms: int) -> list[float]:
    """Record `amount` each millisecond in one worker, while another uses 500 units after 1 and after 11 ms; return what the one knows."""
    segment = new_segment(2)
    busy, other = (SharedWorker(segment, worker, BOUND, 0) for worker in (0, 1))
    known = []
    for now_ms in range(until_ms):
        busy.record(amount, now_ms)
        known.append(busy.remote[1])
        if now_ms in (1, 11):
            other.record(500, now_ms)
            other.publish(now_ms)
    return known


def test_what_is_unknown_is_ten_milliseconds_old_at_most() -> None:
    """A worker that uses much of the room takes in within 10 ms what another published, without a measurement in between."""
    assert known_of_the_other(20, 22) == [0.0] * SHARE_MS + [500.0] * SHARE_MS + [1_000.0] * 2


def test_a_worker_that_uses_little_shares_each_hundred_milliseconds() -> None:
    """A worker that used less than a 32nd of its share of the room takes in what another published 100 ms later."""
    assert known_of_the_other(1, 112) == [0.0] * SHARE_MS + [500.0] * SHARE_LITTLE_MS + [1_000.0] * 2


def test_usage_in_a_burst_is_published_at_once() -> None:
    """A worker that has used little publishes as soon as it used more than a 32nd of its share of the room, whatever the time."""
    one, other = (SharedWorker(segment, worker, BOUND, 0) for segment in [new_segment(2)] for worker in (0, 1))
    one.record(1, 0)
    one.record(1, 20)
    little = int(BOUND * 10 / 2 / LITTLE_PARTS)
    one.record(little - 2, 21)
    other.pull(21)
    assert other.known == 2
    one.record(3, 22)
    other.pull(22)
    assert other.known == little + 3


def test_near_the_bound_every_worker_shares_each_ten_milliseconds() -> None:
    """With more than half of the window in use, a worker that uses little takes in what another published within 10 ms, too."""
    one, other = (SharedWorker(segment, worker, BOUND, 0) for segment in [new_segment(2)] for worker in (0, 1))
    one.record(6_000, 0)
    for now_ms in (20, 40):
        one.record(1, now_ms)
    other.record(1_000, 41)
    other.publish(41)
    one.record(1, 40 + SHARE_MS)
    assert one.remote[1] == 1_000


def test_the_room_is_divided() -> None:
    """One of four workers records without a look at the others only as long as it uses a quarter of the remaining window."""
    segment = new_segment(4)
    workers = [SharedWorker(segment, worker, BOUND, 0) for worker in range(4)]
    assert workers[0].group.certain_room(0) < 0, "before the first record nothing is certain"
    workers[0].record(2_000, 0)
    assert workers[0].group.certain_room(1) == pytest.approx(2_000)
    workers[1].record(4_000, 2)
    workers[0].record(2_001, 3)
    assert workers[0].remote[1] == 4_000


def test_together_they_have_one_window() -> None:
    """Four workers together record one window without a throttle, and the next record of each is throttled."""
    segment = new_segment(4)
    workers = [SharedWorker(segment, worker, BOUND, 0) for worker in range(4)]
    answers = [worker.record(2_500, 0) for worker in workers]
    assert answers == [0, 0, 0, 0]
    assert [worker.record(1_000, 20) for worker in workers] == [980, 1_980, 2_980, 3_980]


@pytest.mark.parametrize("gap_ms", [0, 15, 900, 5_000, 9_000])
def test_a_client_that_moves_gets_no_second_window(gap_ms: int) -> None:
    """What a client used in one worker counts in the next one, also when that worker was idle or is new."""
    segment = new_segment(3)
    first, idle = SharedWorker(segment, 0, BOUND, 0), SharedWorker(segment, 1, BOUND, 0)
    idle.record(1, 0)
    first.record(10_000, 500)
    assert idle.record(5_000, 500 + gap_ms) > 0
    idle.publish(500 + gap_ms)
    new = SharedWorker(segment, 2, BOUND, 500 + gap_ms)
    assert new.record(5_000, 500 + gap_ms) > 0


@pytest.mark.parametrize("gap_ms", [5_000, 12_000, 60_000])
@pytest.mark.parametrize("is_new", [False, True])
def test_no_throttle_after_a_gap_that_the_use_does_not_justify(gap_ms: int, is_new: bool) -> None:
    """An idle or new worker does not throttle a client whose use in another worker is below the quota."""
    segment = new_segment(2)
    steady, idle = (SharedWorker(segment, worker, BOUND, 0) for worker in (0, 1))
    if not is_new:
        idle.record(1, 0)
    answers = [steady.record(9.5, now_ms) for now_ms in range(0, gap_ms, 10)]
    if is_new:
        idle = SharedWorker(segment, 1, BOUND, gap_ms)
    for now_ms in range(gap_ms, gap_ms + 15_000, 10):
        answers.append(steady.record(9, now_ms))
        answers.append(idle.record(0.5, now_ms))
    assert set(answers) == {0}


def test_a_dead_predecessor_is_remembered() -> None:
    """A restarted worker counts what its predecessor recorded, and so do the other workers, once."""
    segment = new_segment(2)
    dying = SharedWorker(segment, 0, BOUND, 0)
    dying.record(10_000, 5_000)
    again = SharedWorker(segment, 0, BOUND, 6_000)
    assert again.record(1_000, 6_000) == 1_000
    assert again.remote == [10_000.0, 0.0]
    other = SharedWorker(segment, 1, BOUND, 6_010)
    assert other.record(0, 6_010) > 0
    assert other.remote == [11_000.0, 0.0]


def test_usage_older_than_all_samples_is_skipped_and_counted_as_seen() -> None:
    """Usage outside the window throttles no client, and is counted as skipped once."""
    segment = new_segment(2)
    first, second = (SharedWorker(segment, worker, BOUND, 0) for worker in (0, 1))
    first.record(10_000, 0)
    assert second.record(10_000, 13_000) == 0
    assert (second.remote, second.skipped) == ([0.0, 0.0], [10_000.0, 0.0])
    second.record(0, 13_020)
    assert (second.remote, second.skipped) == ([0.0, 0.0], [10_000.0, 0.0])


def test_what_is_taken_back_is_taken_back_everywhere() -> None:
    """Usage that one worker takes back is also taken back in the others."""
    segment = new_segment(2)
    first, second = (SharedWorker(segment, worker, BOUND, 0) for worker in (0, 1))
    first.record(9_000, 0)
    second.record(0, 1)
    first.record_unchecked(-4_000, 5)
    first.publish(11)
    second.record(0, 12)
    assert second.group.recorded_total == 5_000


def test_a_new_bound_divides_anew() -> None:
    """The next record after a change of the quota is judged by the new one."""
    segment = new_segment(2)
    worker = SharedWorker(segment, 0, 1e9, 0)
    worker.record(5_000, 0)
    worker.group.update_bound(BOUND)
    assert worker.record(1_000, 1) == 0
    assert worker.group.certain_room(2) == pytest.approx(2_000)
    assert worker.record(5_000, 2) == 998


def new_family(segment: Segment, worker: int) -> tuple[SharedWorker, SharedWorker]:
    """Return a parent group and its child in one worker."""
    parent = SharedWorker(segment, worker, BOUND, 0)
    child = SharedWorker(segment, worker, 10 * BOUND, 0, scope_key="child")
    child.put_under(parent.group)
    return parent, child


def test_parents_publish_their_own() -> None:
    """Usage of a child that another worker published is counted once in the parent."""
    segment = new_segment(2)
    (parent, child), (far_parent, far_child) = new_family(segment, 0), new_family(segment, 1)
    assert child.record(6_000, 0) == 0
    assert far_child.record(6_000, 20) == 1_980
    child.record_unchecked(-2_000, 40)
    for one in (parent, child, far_parent, far_child):
        one.publish(50)
    far_child.record(0, 60)
    child.record(0, 80)
    totals = [one.group.recorded_total for one in (parent, child, far_parent, far_child)]
    assert totals == [10_000.0] * 4


def test_a_group_under_another_parent_goes_on_in_its_row() -> None:
    """A group publishes each unit once when it gets a parent and loses it again."""
    segment = new_segment(2)
    worker, other = (SharedWorker(segment, number, BOUND, 0) for number in (0, 1))
    parent = SharedWorker(segment, 0, BOUND, 0, scope_key="parent")
    worker.record(1_000, 0)
    worker.put_under(parent.group)
    worker.record(2_000, 1)
    worker.put_under(None)
    worker.record(4_000, 2)
    worker.publish(12)
    other.record(0, 12)
    assert other.remote == [7_000.0, 0.0]
    assert parent.group.recorded_total == 2_000
