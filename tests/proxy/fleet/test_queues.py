"""Waiting fetches of all members of a fleet go in about the order in which one process would forward them."""

from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from proxy.fleet.clock import Clock
from proxy.fleet.members import FLIGHT_MS
from proxy.fleet.queues import REPEAT_MS, merged
from proxy.fleet.rows import WaitingFetches
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.shared_usage.segment import FETCH_TIMES, HEARTBEAT_AGE_MAX_MS
from quota.entity import ClientQuotaType
from tests.support.fleet.fleet_members import FleetMember, exchange, workers_of

BOUND = 1_000.0
START_MS = 1_000_000
WINDOW_BYTES = 10_000


def members(count: int = 2, workers: int = 1) -> list[FleetMember]:
    """Return members with a group of fetches of the same name."""
    return [FleetMember(f"edge-{number}", workers, BOUND, START_MS, quota_type=ClientQuotaType.FETCH) for number in range(count)]


def asks(member: FleetMember, size_bytes: int, read_ms: int, now_ms: int, worker: int = 0) -> FetchAdmission:
    """Let a new connection of a worker ask for a fetch that was read at `read_ms`; return its admission, which holds what it waits for."""
    admission = FetchAdmission()
    if checks(admission, member, size_bytes, read_ms, now_ms, worker):
        admission.forwarded(member.workers[worker].group)
    return admission


def checks(admission: FetchAdmission, member: FleetMember, size_bytes: int, read_ms: int, now_ms: int, worker: int = 0) -> bool:
    """Whether a fetch may be forwarded now."""
    return admission.admits(member.workers[worker].group, size_bytes, now_ms, read_ms, has_throttle_round=False)


def queue_of_others(member: FleetMember) -> tuple[int, int]:
    """Return the number of waiting fetches of the other members, and the time of the oldest, as they stand in the only row."""
    (row,) = member.rows.shared_rows().tolist()
    words, fleet = member.segment.words, workers_of(member.segment)
    return words[member.segment.waiting_at(row) + fleet], words[member.segment.oldest_fetches_at(row) + fleet]


def front(at: FleetMember, waits_at: FleetMember, read_ms: int) -> int:
    """Return the time of a fetch that waits at one member, as it stands in the row of another one: 1 more, or the time itself.

    Of two fetches of the same time that of the member with the lower incarnation is the older one.
    """
    return read_ms + (waits_at.segment.incarnation > at.segment.incarnation)


def full(some: list[FleetMember], now_ms: int = START_MS) -> None:
    """Let the first member use the whole window."""
    some[0].workers[0].record(float(WINDOW_BYTES), now_ms)
    exchange(some, now_ms)


def test_members_know_how_many_fetches_wait_elsewhere_and_since_when() -> None:
    """After one message a member has the sum of all fetches that wait at other members, and the time of the oldest by its own clock."""
    one, other, third = some = members(3, workers=2)
    one.clock, other.clock, third.clock = Clock(5_000_000, START_MS), Clock(5_000_000, START_MS), Clock(5_000_000, START_MS - 700)
    full(some)
    asks(other, 100, START_MS + 11, START_MS + 11)
    asks(other, 100, START_MS + 12, START_MS + 12, worker=1)
    asks(third, 100, START_MS + 40, START_MS + 40)
    exchange(some, START_MS + 50)
    assert queue_of_others(one) == (3, front(one, other, START_MS + 11))
    assert queue_of_others(other) == (1, front(other, third, START_MS + 40 + 700))
    assert queue_of_others(third) == (2, front(third, other, START_MS + 11 - 700))


def test_a_queue_that_has_ended_or_that_is_not_heard_of_is_empty() -> None:
    """A fetch that leaves is removed with the next message; those of a stopped hub, or of a member that is silent for 3 s, do not count."""
    one, other = some = members()
    full(some)
    left, stays = (asks(other, 100, START_MS + at, START_MS + at) for at in (10, 20))
    exchange(some, START_MS + 30)
    left.abandon()
    exchange(some, START_MS + 40)
    assert queue_of_others(one) == (1, front(one, other, START_MS + 20))
    group = one.workers[0].group
    queue = group.new_fetch_queue()
    place = queue.join(START_MS + 30, lambda: None, START_MS + 40)
    group.pending_at(START_MS + 40)
    assert (len(queue), queue.ahead(place, START_MS + 40)) == (2, 1)
    one.segment.store_heartbeat(workers_of(one.segment), START_MS)
    assert queue.ahead(place, START_MS + HEARTBEAT_AGE_MAX_MS) == 0
    one.members.expire(START_MS + 40 + FLIGHT_MS + 1)
    assert queue_of_others(one) == (0, 0)
    exchange(some, START_MS + 60 + FLIGHT_MS)
    assert queue_of_others(one) == (1, front(one, other, START_MS + 20))  # a queue without changes is published again
    stays.abandon()


@given(st.lists(st.lists(st.integers(1, 60_000), max_size=40), min_size=1, max_size=4))
def test_the_order_of_merged_queues_is_known_within_an_eighth(times: list[list[int]]) -> None:
    """Of queues that are merged, number and oldest time are exact, and so is the rank of each time within a part of each queue."""
    rows = [
        WaitingFetches(np.array([[len(some)]]), np.array([[min(some, default=0)]]), parts_of(sorted(some))[None, None]) for some in times
    ]
    found = merged(WaitingFetches(*(np.concatenate(part, axis=1) for part in zip(*rows, strict=True))))
    all_times = sorted(time for some in times for time in some)
    assert (found.counts[0], found.fronts[0]) == (len(all_times), min(all_times, default=0))
    if all_times:
        slack = len(all_times) / FETCH_TIMES / 2 + sum(len(some) / FETCH_TIMES / 2 for some in times) + len(times)
        for at, time in enumerate(found.times[0].tolist()):
            rank = (2 * at + 1) * len(all_times) / (2 * FETCH_TIMES)
            assert bisect_left(all_times, time) - slack <= rank <= bisect_right(all_times, time) + slack


def parts_of(times: list[int]) -> npt.NDArray[np.int64]:
    """Return the times in the middle of equal parts of a queue."""
    return np.array([times[at * len(times) // (2 * FETCH_TIMES)] if times else 0 for at in range(1, 2 * FETCH_TIMES, 2)])


def test_a_lost_message_about_a_queue_is_repeated() -> None:
    """A member publishes a queue again after a second as long as fetches wait."""
    one, other = some = members()
    full(some)
    asks(other, 100, START_MS + 10, START_MS + 10)
    assert other.publish(START_MS + 20)  # is lost
    exchange(some, START_MS + 30)
    assert queue_of_others(one) == (0, 0)
    exchange(some, START_MS + 20 + REPEAT_MS)
    assert queue_of_others(one) == (1, front(one, other, START_MS + 10))


def test_a_newer_fetch_waits_for_an_older_one_elsewhere_until_both_have_room() -> None:
    """With room for one fetch only the older one goes, at whichever member it waits; with room for both the newer one does not wait."""
    one, other = some = members()
    one.workers[0].record(4_000.0, START_MS)
    exchange(some, START_MS)
    one.workers[0].record(6_000.0, START_MS + 2_000)
    exchange(some, START_MS + 2_000)
    older, newer = FetchAdmission(), FetchAdmission()
    asked_ms = START_MS + 2_100
    assert not checks(older, one, 3_000, asked_ms, asked_ms)
    assert not checks(newer, other, 3_000, asked_ms + 1, asked_ms + 1)
    exchange(some, asked_ms + 20)
    room_ms = START_MS + 11_500  # the first 4,000 bytes are obsolete
    assert not checks(newer, other, 3_000, asked_ms + 1, room_ms)
    assert newer.wait_until_ms > room_ms
    assert checks(older, one, 3_000, asked_ms, room_ms)
    older.forwarded(one.workers[0].group)
    exchange(some, room_ms + 20)
    assert not checks(newer, other, 3_000, asked_ms + 1, room_ms + 40)  # the older one is in flight
    both_ms = START_MS + 13_500
    waiting = FetchAdmission()
    assert not checks(waiting, one, 3_000, asked_ms, room_ms + 40)
    exchange(some, room_ms + 60)
    assert queue_of_others(other)[0] == 1
    assert checks(newer, other, 3_000, asked_ms + 1, both_ms)


def test_only_the_oldest_fetch_of_all_members_takes_a_throttle_round() -> None:
    """After 25 s one fetch passes a full window: the oldest of the fleet."""
    one, other = some = members()
    full(some)
    older = asks(one, 9_000, START_MS + 10, START_MS + 10)
    newer = asks(other, 9_000, START_MS + 20, START_MS + 20)
    exchange(some, START_MS + 30)
    due_ms = START_MS + 25_020
    one.workers[0].record(float(WINDOW_BYTES), due_ms - 500)
    exchange(some, due_ms - 500)
    exchange(some, due_ms)
    assert not checks(newer, other, 9_000, START_MS + 20, due_ms)
    assert checks(older, one, 9_000, START_MS + 10, due_ms)


def test_of_two_fetches_of_the_same_time_one_is_older_at_both_members() -> None:
    """Members agree which one of two fetches that were read at the same time goes first."""
    some = members()
    full(some)
    for member in some:
        asks(member, 100, START_MS + 10, START_MS + 10)
    exchange(some, START_MS + 20)
    ahead = []
    for member in some:
        group = member.workers[0].group
        queue = group.new_fetch_queue()
        ahead.append(queue.ahead(queue.join(START_MS + 10, lambda: None, START_MS + 30), START_MS + 30))
    assert sorted(ahead) == [0, 1]
