"""The expected bytes of requests in flight and the throttle rounds of a group are shared between workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.session.throttle.fetch_admission import FetchAdmission
from quota.entity import ClientQuotaType
from tests.support.memory.shared_workers import SharedWorker, new_segment

BOUND = 1_000.0
TYPES = st.sampled_from([ClientQuotaType.PRODUCE, ClientQuotaType.REQUEST])
NOTES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**20), st.booleans()), max_size=40)


def two_workers() -> tuple[SharedWorker, SharedWorker]:
    """Return two workers whose groups have rows."""
    segment = new_segment(2)
    first, second = (SharedWorker(segment, worker, BOUND, 0) for worker in (0, 1))
    for worker in (first, second):
        worker.pull(0)
    return first, second


@given(st.integers(2, 4), TYPES, NOTES)
def test_all_know_the_same_amount_under_way(workers: int, quota_type: ClientQuotaType, notes: list[tuple[int, int, bool]]) -> None:
    """Every worker knows the exact sum of what all have in flight, and 0.0 once all of it is answered."""
    segment = new_segment(workers)
    fleet = [SharedWorker(segment, worker, BOUND, 0, quota_type=quota_type) for worker in range(workers)]
    part = 2.0**-24 if quota_type is ClientQuotaType.REQUEST else 1.0
    noted = [0.0] * workers
    for now_ms, (number, amount, is_pulled) in enumerate(notes):
        worker = fleet[number % workers]
        worker.group.pending += amount * part
        noted[worker.worker] += amount * part
        if is_pulled:
            worker.pull(now_ms)
    for expected in (sum(noted), 0.0):
        for worker in (*fleet, *fleet):
            worker.pull(100)
        assert [worker.group.pending for worker in fleet] == [expected] * workers
        for worker in fleet:
            worker.group.pending -= noted[worker.worker]


def test_a_change_without_a_record_is_published() -> None:
    """A change of what is in flight is published by the timer without a record."""
    first, second = two_workers()
    first.publish(5)
    first.group.pending += 700
    first.publish(15)
    second.pull(20)
    assert second.group.pending == 700
    first.group.pending -= 700
    first.publish(25)
    second.pull(30)
    assert second.group.pending == 0.0


def test_what_a_group_without_a_row_has_under_way_is_published_with_its_row() -> None:
    """What a group without a row has in flight is published as soon as the timer has claimed a row."""
    segment = new_segment(2)
    first, second = (SharedWorker(segment, worker, BOUND, 0) for worker in (0, 1))
    first.group.pending += 700
    first.publish(10)
    second.pull(20)
    assert second.group.pending == 700


def test_a_dead_worker_has_nothing_under_way() -> None:
    """What a worker had in flight no longer counts after it has died."""
    first, second = two_workers()
    first.group.pending += 700
    first.publish(10)
    second.pull(15)
    first.usage.segment.exit(0, 0)
    second.pull(30)
    assert second.group.pending == 0.0


def test_a_forgotten_group_has_nothing_under_way() -> None:
    """What a released group had in flight is subtracted once in the other workers."""
    first, second = two_workers()
    second.group.pending += 50
    second.publish(5)
    first.group.pending += 700
    first.pull(10)
    first.group.leave()
    second.pull(20)
    assert second.group.pending == 50
    first.group.pending -= 700
    first.publish(30)
    second.pull(40)
    assert (first.group.pending, second.group.pending) == (0.0, 50)


def test_under_way_for_a_child_is_under_way_for_its_parent() -> None:
    """The amount in flight of a parent group is that of all its children in all workers."""
    segment = new_segment(2)
    parents = [SharedWorker(segment, worker, BOUND, 0) for worker in range(2)]
    children: list[EnforcedGroup] = []
    for worker, parent in enumerate(parents):
        make = parent.usage.of_scope(f"child {worker}").maker(ClientQuotaType.PRODUCE)
        children.append(make({"client-id": "child"}, 10 * BOUND, parent=parent.group))
    children[0].pending += 300
    children[1].pending += 40
    for now_ms in (10, 20):
        for parent in parents:
            parent.publish(now_ms)
            parent.group.certain_room(now_ms)
    assert [child.pending for child in children] == [300, 40]
    assert [parent.group.pending for parent in parents] == [340, 340]
    assert children[0].would_throttle_ms(10_000, 30) == 40


def test_a_throttle_round_is_given_out_once_by_all_workers() -> None:
    """The time of the last throttle round of a group is the same in all workers, also when a round is given back."""
    first, second = two_workers()
    before_ms = first.group.last_throttle_round_ms
    first.group.last_throttle_round_ms = 30_000
    assert second.group.last_throttle_round_ms == 30_000
    second.group.last_throttle_round_ms = 60_000
    assert first.group.last_throttle_round_ms == 60_000
    second.group.last_throttle_round_ms = 30_000
    first.group.last_throttle_round_ms = before_ms
    assert second.group.last_throttle_round_ms == 30_000


def test_a_throttle_round_of_a_chain_is_the_limiting_groups() -> None:
    """A throttle round counts for the child group alone, or also for the parent when the parent limits it."""
    segment = new_segment(2)
    parent = SharedWorker(segment, 0, BOUND, 0)
    child = parent.usage.of_scope("child").maker(ClientQuotaType.PRODUCE)({"client-id": "child"}, 10 * BOUND, parent=parent.group)
    before_ms = child.last_throttle_round_ms
    child.last_throttle_round_ms = 1_000
    assert (child.last_throttle_round_ms, parent.group.last_throttle_round_ms) == (1_000, before_ms)
    assert child.record(20_000, 2_000) > 0
    child.last_throttle_round_ms = 3_000
    assert (child.last_throttle_round_ms, parent.group.last_throttle_round_ms) == (3_000, 3_000)


@pytest.mark.parametrize("quiet_ms", [0, 5_000])
def test_a_fetch_waits_for_what_other_workers_have_under_way(quiet_ms: int) -> None:
    """A Fetch waits while the fetches in flight of another worker may fill the window, also in a worker that was idle."""
    first, second = two_workers()
    second.record(1, 10)
    admissions = [FetchAdmission() for _ in range(3)]
    now_ms = 20 + quiet_ms
    assert admissions[0].admits(first.group, 9_000, now_ms, now_ms, has_throttle_round=False)
    admissions[0].forwarded(first.group)
    first.publish(now_ms + 10)
    assert not admissions[1].passes(second.group, 5_000, now_ms + 15)
    assert not admissions[1].admits(second.group, 5_000, now_ms + 15, now_ms + 15, has_throttle_round=False)
    admissions[0].answered(100)
    first.record(100, now_ms + 20)
    first.publish(now_ms + 30)
    assert admissions[2].admits(second.group, 5_000, now_ms + 40, now_ms + 40, has_throttle_round=False) is False, "one is before it"
    assert admissions[1].admits(second.group, 5_000, now_ms + 40, now_ms + 15, has_throttle_round=False)
