"""When a member publishes a change: at once if it may matter for decisions of others, otherwise once a second."""

from itertools import pairwise

import pytest

from proxy.fleet.own_usage import REPEAT_MS
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import LITTLE_PARTS
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import UNLIMITED, ClientQuotaType
from tests.support.fleet.fleet_members import KEYS, FleetMember, exchange

BOUND = 1_000.0
WINDOW = 10 * BOUND
START_MS = 1_000_000
STEP_MS = 50


def sent(member: FleetMember, now_ms: int, members: int = 1) -> list[int]:
    """Return the totals that the member publishes."""
    for worker in member.workers:
        worker.publish(now_ms)
    return [int(total) for total in member.own.changes(member.reading(), 100, now_ms, members=members)[1]["total"]]


def sent_times(member: FleetMember, amount: float, steps: int) -> list[int]:
    """Return when a group that uses `amount` in each step is published, in ms from the start."""
    found = []
    for at in range(steps):
        now_ms = START_MS + at * STEP_MS
        member.workers[0].record(amount, now_ms)
        if sent(member, now_ms):
            found.append(now_ms - START_MS)
    return found


def test_a_group_far_below_its_bound_is_published_once_a_second() -> None:
    """A group that uses a hundredth of its bound costs one total a second, and one at its bound one in each interval."""
    cold = sent_times(FleetMember("cold", 1, BOUND, START_MS), BOUND / 100 / 20, 400)
    assert {after - before for before, after in pairwise(cold)} == {REPEAT_MS}
    hot = sent_times(FleetMember("hot", 1, BOUND, START_MS), BOUND / 20, 800)
    assert {after - before for before, after in pairwise(hot[-200:])} == {STEP_MS}


def test_a_group_whose_bound_is_unlimited_or_raised_is_published_once_a_second() -> None:
    """What the bound allows in a window follows the bound; a group without one is never near it."""
    for bound in (UNLIMITED, BOUND * 1_000):
        member = FleetMember("a", 1, BOUND, START_MS)
        sent_times(member, BOUND / 20, 300)
        member.workers[0].group.update_bound(bound)
        now_ms = START_MS + 300 * STEP_MS
        sent(member, now_ms)
        sent(member, now_ms + REPEAT_MS)
        member.workers[0].record(BOUND, now_ms + REPEAT_MS + STEP_MS)
        assert sent(member, now_ms + REPEAT_MS + STEP_MS) == []


@pytest.mark.parametrize("members", [1, 4])
def test_all_members_together_leave_a_small_part_of_the_window_unpublished(members: int) -> None:
    """While half of the window is free, a change waits if it is at most one part in 32 of the window, divided by the members."""
    member = FleetMember("a", 1, BOUND, START_MS)
    sent(member, START_MS)
    most = WINDOW // (LITTLE_PARTS * members)
    member.workers[0].record(1.0, START_MS)
    assert sent(member, START_MS + 50, members) == [1]  # the time for all changes begins with the first one
    member.workers[0].record(float(most), START_MS + 100)
    assert sent(member, START_MS + 100, members) == []
    member.workers[0].record(1.0, START_MS + 150)
    assert sent(member, START_MS + 150, members) == [most + 2]


def test_usage_of_other_members_makes_a_change_urgent() -> None:
    """When others have used half of the window, what this member did not publish yet is published in the next interval."""
    one, other = (FleetMember(name, 1, BOUND, START_MS) for name in "ab")
    for member in (one, other):
        member.workers[0].record(1.0, START_MS)
    exchange([one, other], START_MS)
    one.workers[0].record(1.0, START_MS + 50)
    assert sent(one, START_MS + 50, 2) == []
    other.workers[0].record(WINDOW / 2, START_MS + 50)
    for data in other.publish(START_MS + 100):
        one.receive(data, START_MS + 100)
    assert sent(one, START_MS + 100, 2) == [2]


def test_a_throttle_round_and_usage_in_flight_do_not_wait() -> None:
    """A throttle round is published at once, and usage in flight as usage."""
    member = FleetMember("a", 1, BOUND, START_MS)
    member.workers[0].record(1.0, START_MS)
    sent(member, START_MS)
    member.workers[0].group.last_throttle_round_ms = START_MS + 50
    assert sent(member, START_MS + 50) == [1]
    assert sent(member, START_MS + 100) == []
    member.workers[0].group.pending += 1_024.0
    assert sent(member, START_MS + 150) == [1]


def test_the_window_is_known_after_a_hub_was_started_again() -> None:
    """A new hub takes what was used in the window from the rows, and forgets it after the window."""
    member = FleetMember("a", 1, BOUND, START_MS)
    sent_times(member, BOUND / 20, 240)
    now_ms = START_MS + 240 * STEP_MS
    member.start_hub(now_ms)
    sent(member, now_ms)
    member.workers[0].record(1.0, now_ms + STEP_MS)
    assert len(sent(member, now_ms + STEP_MS)) == 1
    late_ms = now_ms + 20_000
    sent(member, late_ms)
    member.workers[0].record(1.0, late_ms + STEP_MS)
    assert sent(member, late_ms + STEP_MS) == []


def test_groups_with_the_largest_part_of_their_bound_precede() -> None:
    """When not all groups fit, those are published whose change is the largest part of their bound; the others follow."""
    member = FleetMember("a", 1, BOUND, START_MS)
    segment: Segment = member.segment
    usage = SharedUsage(segment, 0, fleet_key=KEYS.digests)
    make = usage.of_scope("1").maker(ClientQuotaType.PRODUCE)
    amounts = {1e6: 5_000.0, 1e4: 500.0, 1e5: 1_000.0}
    for bound, amount in amounts.items():
        make({"client-id": f"{bound}"}, bound).record_unchecked(amount, START_MS)
    usage.publish_all(START_MS)
    found = [member.own.changes(member.reading(), 1, START_MS + at, members=1)[1]["total"].tolist() for at in range(4)]
    assert found == [[500], [1_000], [5_000], []]
