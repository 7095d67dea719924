"""Fetches of other members of a fleet are recorded at the time at which they happened, as far as the order of records permits."""

from hypothesis import given
from hypothesis import strategies as st

from metering_format.event_kinds import REMOTE
from proxy.shared_usage.assumption import EARLIER_MS_MAX
from quota.entity import ClientQuotaType
from tests.support.fleet.fleet_members import FleetMember, exchange
from tests.support.memory.shared_workers import Step

BOUND = 1_000.0
START_MS = 1_000_000
LAG_MS = 250
SPAN_MS = 11_000
REQUEST = 7_000.0


def members(workers: int = 1, quota_type: ClientQuotaType = ClientQuotaType.FETCH) -> list[FleetMember]:
    """Return two members that have exchanged messages, so that later usage is recorded as it becomes known."""
    some = [FleetMember(name, workers, BOUND, START_MS, quota_type=quota_type) for name in ("edge-1", "edge-2")]
    for member in some:
        member.lag_ms = LAG_MS
        member.workers[0].record(REQUEST / 8, START_MS)
    exchange(some, START_MS)
    for worker in (worker for member in some for worker in member.workers):
        worker.pull(START_MS + 20)
    return some


def remote_steps(member: FleetMember) -> list[Step]:
    """Return the usage of others that the first worker of a member recorded."""
    return [step for step in member.workers[0].steps if step.kind == "unchecked"]


def test_usage_of_another_member_leaves_the_window_when_it_leaves_there() -> None:
    """Usage of another member is recorded at its time, D ago, so it leaves the window when it does so at the other member."""
    one, other = some = members()
    used_ms = START_MS + 500
    one.workers[0].record(100.0, used_ms - 1)
    other.workers[0].record(REQUEST, used_ms)
    one.workers[0].pull(used_ms)
    exchange(some, used_ms + LAG_MS)
    one.workers[0].pull(used_ms + LAG_MS)
    assert remote_steps(one)[-1] == Step("unchecked", REQUEST, used_ms)
    free_ms = used_ms + SPAN_MS
    assert one.workers[0].would_throttle_ms(REQUEST, free_ms - 1) > 0
    assert one.workers[0].would_throttle_ms(REQUEST, free_ms) == 0


def test_usage_of_another_worker_does_not_delay_that_of_another_member() -> None:
    """When usage of a worker and of another member become known together, that of the member is recorded first, at its time."""
    one, other = some = members(workers=2)
    used_ms = START_MS + 500
    other.workers[0].record(REQUEST, used_ms)
    one.workers[0].pull(used_ms)
    one.workers[1].record(500.0, used_ms + LAG_MS)
    exchange(some, used_ms + LAG_MS)
    one.workers[0].pull(used_ms + LAG_MS)
    assert remote_steps(one)[-2:] == [Step("unchecked", REQUEST, used_ms), Step("unchecked", 500.0, used_ms + LAG_MS)]


def test_other_usage_is_recorded_when_it_becomes_known() -> None:
    """Usage of requests that do not wait before they are forwarded is recorded at the present time."""
    one, other = some = members(quota_type=ClientQuotaType.PRODUCE)
    other.workers[0].record(REQUEST, START_MS + 500)
    exchange(some, START_MS + 500 + LAG_MS)
    one.workers[0].pull(START_MS + 500 + LAG_MS)
    assert remote_steps(one)[-1] == Step("unchecked", REQUEST, START_MS + 500 + LAG_MS)


def test_usage_is_recorded_at_most_a_second_before_it_becomes_known() -> None:
    """A lag is an average, so a long one does not put usage long before the time at which it may have happened."""
    one, other = some = members()
    one.lag_ms = 2 * EARLIER_MS_MAX
    exchange(some, START_MS + 100)
    known_ms = START_MS + 20 + EARLIER_MS_MAX
    other.workers[0].record(REQUEST, known_ms)
    exchange(some, known_ms)
    one.workers[0].pull(known_ms)
    assert remote_steps(one)[-1] == Step("unchecked", REQUEST, known_ms - EARLIER_MS_MAX)


@given(
    steps=st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.integers(1, 3_000), st.booleans()), max_size=30),
    lag_ms=st.integers(0, 3_000),
)
def test_records_are_in_order(steps: list[tuple[int, bool, int, bool]], lag_ms: int) -> None:
    """Whatever members use and whenever they hear of it, no record of a group is before its last one, or after the present time."""
    one, other = some = members()
    for member in some:
        member.lag_ms = lag_ms
    now_ms, times = START_MS + 20, list[int]()
    one.workers[0].usage.on_remote = lambda *record: times.append(record[4]) if record[5] == REMOTE else None
    for pause_ms, is_here, amount, is_heard in steps:
        now_ms += pause_ms
        (one if is_here else other).workers[0].record(float(amount), now_ms)
        if is_here:
            times.append(now_ms)
        if is_heard:
            exchange(some, now_ms)
            one.workers[0].pull(now_ms)
        assert times == sorted(times)
        assert not times or times[-1] <= now_ms
