"""What is assumed of fetches of other members, from those that this member has forwarded and those that are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shared_usage.assumption import FORWARDED_MS, LATELY_MS, NEW_LAGS, Fetches, Forwarded, LatelyKnown, OwnRecent, known_within_ms
from proxy.shared_usage.fleet_groups import InFleet
from quota.entity import ClientQuotaType
from tests.support.fleet.fleet_members import FleetMember, exchange

LAG_MS = 40
START_MS = 1_000_000
BOUND = 1_000.0
SILENCE_MS = 11_000


class Queue:
    """Fetches of a group with a full window, some of which wait; `factor` times as many are asked for elsewhere."""

    def __init__(self, factor: float = 3.0, lag_ms: int = LAG_MS) -> None:
        self.forwarded = Forwarded()
        self.factor, self.lag_ms = factor, lag_ms

    def unknown(self, here: float, elsewhere: float, now_ms: int, *, waits: bool = True) -> float:
        """Return what is assumed after so many units here and elsewhere."""
        fetches = Fetches(now_ms, here, elsewhere, 100.0, 100.0 * self.factor)
        factor = self.forwarded.note(fetches, self.lag_ms, waits=waits)
        return 0.0 if factor is None else self.forwarded.unknown(fetches, factor, self.lag_ms)


def test_what_this_member_forwarded_is_assumed_of_the_others_until_it_is_known() -> None:
    """With a factor of 3 the others are assumed to have forwarded 3 bytes for each one here, less what is known of them."""
    queue = Queue()
    assert queue.unknown(0.0, 0.0, 0) == 0.0
    assert queue.unknown(100.0, 0.0, 10) == 300.0
    assert queue.unknown(100.0, 120.0, 100) == 180.0
    assert queue.unknown(100.0, 400.0, 200) == 0.0


def test_what_is_older_than_any_lag_is_not_assumed() -> None:
    """Fetches that are older than `FORWARDED_MS` are known, or were not forwarded."""
    queue = Queue()
    queue.unknown(0.0, 0.0, 0)
    found = [queue.unknown(100.0, 0.0, at_ms) for at_ms in range(10, 1_000, 10)]
    assert found.index(0.0) * 10 == pytest.approx(FORWARDED_MS, abs=20)
    assert set(found) == {300.0, 0.0}


def test_a_silence_begins_anew() -> None:
    """Fetches before a time without decisions are not assumed after it."""
    queue = Queue()
    queue.unknown(0.0, 0.0, 0)
    queue.unknown(100.0, 0.0, 10)
    assert queue.unknown(200.0, 500.0, 5_000) == 0.0
    assert queue.unknown(300.0, 500.0, 5_010) == 300.0


def test_of_even_use_the_last_lag_is_assumed() -> None:
    """While all members forward evenly, what is not known is what the others forward within D."""
    queue = Queue()
    found = [queue.unknown(at_ms, 3.0 * max(0, at_ms - LAG_MS), at_ms) for at_ms in range(0, 5_000, 5)]
    assert found[-1] == pytest.approx(3.0 * LAG_MS, rel=0.25)


def test_without_a_waiting_fetch_nothing_is_assumed() -> None:
    """While no fetch waits at any member, and none has in the last time, the window has room for all of them."""
    queue = Queue()
    found = [queue.unknown(at_ms, 0.0, at_ms, waits=at_ms < 500) for at_ms in range(0, 2_000, 10)]
    assert found[49] > 0.0
    assert found[-1] == 0.0


def test_a_consumer_between_two_fetches_counts_while_fetches_wait() -> None:
    """While fetches wait, the factor is that of the most that was asked for in the last time; otherwise that of the present."""
    forwarded = Forwarded()
    assert forwarded.note(Fetches(0, 0.0, 0.0, 400.0, 1_200.0), LAG_MS, waits=True) == 3.0
    assert forwarded.note(Fetches(10, 0.0, 0.0, 100.0, 700.0), LAG_MS, waits=False) == 3.0
    assert forwarded.note(Fetches(FORWARDED_MS + 20, 0.0, 0.0, 100.0, 700.0), LAG_MS, waits=False) == 7.0
    assert forwarded.note(Fetches(FORWARDED_MS + 30, 0.0, 0.0, 100.0, 0.0), LAG_MS, waits=False) is None


def test_in_a_burst_after_a_silence_it_is_assumed_before_a_fetch_waits() -> None:
    """While the use is new, what this member forwarded is assumed of the others although nothing waits yet."""
    forwarded = Forwarded()
    forwarded.note(Fetches(0, 0.0, 0.0, 100.0, 0.0), LAG_MS, waits=False)
    burst = Fetches(10, 500.0, 200.0, 100.0, 0.0)
    forwarded.note(burst, LAG_MS, waits=False)
    assert forwarded.unknown(burst, 3.0, LAG_MS) == 0.0
    assert forwarded.unknown(burst, 3.0, LAG_MS, is_new=True) == 1_300.0


def test_a_fetch_that_waits_first_begins_the_use_after_a_silence() -> None:
    """A fetch is checked in the queue before anything is recorded, and this check, too, notices the silence before it."""
    recent = OwnRecent()
    recent.used(0.0, 100.0, LAG_MS, SILENCE_MS, START_MS)
    now_ms = START_MS + SILENCE_MS + 1
    recent.goes_on(SILENCE_MS, now_ms)
    assert recent.is_new(known_within_ms(LAG_MS), now_ms)
    recent.goes_on(SILENCE_MS, now_ms + FORWARDED_MS)
    assert not recent.is_new(known_within_ms(LAG_MS), now_ms + FORWARDED_MS)


def test_older_fetches_elsewhere_leave_the_assumption_of_a_new_use() -> None:
    """What is reserved for older fetches of other members is no reason to forward more, also while the use is new."""
    one, other = some = [FleetMember(name, 1, BOUND, START_MS, quota_type=ClientQuotaType.FETCH) for name in ("edge-1", "edge-2")]
    for member in some:
        member.lag_ms = LAG_MS
    other.workers[0].record(10.0, START_MS)
    exchange(some, START_MS)
    exchange(some, START_MS + 1)
    one.workers[0].group.fetch_throttle_ms(100.0, 0.0, START_MS + 10)
    one.workers[0].record_unchecked(5_500.0, START_MS + 10)
    throttles_ms = [one.workers[0].group.fetch_throttle_ms(100.0, ahead_bytes, START_MS + 20) for ahead_bytes in (0.0, 500.0, 5_000.0)]
    assert min(throttles_ms) > 0


def lately(
    elsewhere_per_ms: float, *, until_ms: int, factor: float = 3.0, late_ms: int = LAG_MS, silent_ms: range = range(0)
) -> list[float]:
    """Return the factor at each 10 ms while this member uses 1 unit a ms, but none in `silent_ms`; what others use is known late."""
    known, own, found = LatelyKnown(), 0.0, []
    for now_ms in range(0, until_ms, 10):
        elsewhere = elsewhere_per_ms * max(0, now_ms - late_ms)
        if now_ms not in silent_ms:
            found.append(known.factor(factor, own, elsewhere, float(LAG_MS), LAG_MS, now_ms))
            own += 10.0
    return found


def test_others_that_have_stopped_are_hardly_assumed() -> None:
    """When clients have moved here, the others use nothing: nobody knows for 2 D, and then less is assumed with each unit used here."""
    found = lately(0.0, until_ms=2_000)
    assert set(found[: NEW_LAGS * LAG_MS // 10]) == {3.0}
    assert sorted(found[: LATELY_MS // 10], reverse=True) == found[: LATELY_MS // 10]
    assert found[LATELY_MS // 2 // 10] < 0.5
    assert found[-1] == pytest.approx(3.0 * LAG_MS / (LATELY_MS + LAG_MS), rel=0.2)


@pytest.mark.parametrize("late_ms", [LAG_MS // 2, LAG_MS, NEW_LAGS * LAG_MS])
def test_others_that_go_on_are_assumed_as_before(late_ms: int) -> None:
    """While the others use as much as in the last seconds, or more, the factor stays, also if messages are late."""
    for rate in (3.0, 5.0):
        assert set(lately(rate, until_ms=3_000, late_ms=late_ms)) == {3.0}


def test_a_silence_here_says_nothing_about_the_others() -> None:
    """After a second without decisions the factor is the given one again for 2 D."""
    begin_ms = 2_000 + LATELY_MS
    found = lately(0.0, until_ms=begin_ms + 1_000, silent_ms=range(2_000, begin_ms))
    assert set(found[200 : 200 + NEW_LAGS * LAG_MS // 10]) == {3.0}
    assert found[-1] < 0.5


def test_members_whose_clients_have_left_are_hardly_assumed() -> None:
    """All clients move to another member: a second later it assumes much less than it uses in D, though the first used more lately."""
    one, other = some = [FleetMember(name, 1, BOUND, START_MS) for name in ("edge-1", "edge-2")]
    assumed = []
    for at_ms in range(START_MS, START_MS + 10_000, 10):
        for member in some:
            member.lag_ms = LAG_MS
        user = one if at_ms < START_MS + 8_000 else other
        user.workers[0].record(10.0 if user is one else 20.0, at_ms)
        exchange(some, at_ms)
        usage = user.workers[0].group.fleet_usage
        assumed.append(0.0 if usage is None else usage.assumed)
    used = 20.0 * LAG_MS / 10
    assert max(assumed[800:820]) >= 0.8 * used
    assert max(assumed[900:]) < 0.25 * used


def test_the_first_wave_after_a_short_silence_is_that_of_one_window() -> None:
    """Of two members one used nearly all before a silence of some seconds: in the next wave both together pass one window, not two."""
    one, other = some = [FleetMember(name, 1, BOUND, START_MS) for name in ("edge-1", "edge-2")]
    for member in some:
        member.lag_ms = 250
    for at_ms in range(START_MS, START_MS + 1_000, 50):
        one.workers[0].record(5.0, at_ms)
        other.workers[0].record(0.1, at_ms)
        exchange(some, at_ms)
    begin_ms = START_MS + 1_000 + 7_000
    for at_ms in (begin_ms - 2, begin_ms - 1):  # they have heard each other all the time
        exchange(some, at_ms)
    passed, throttled = 0.0, set[str]()
    for at_ms in range(begin_ms, begin_ms + 200):  # within D, so neither knows what the other uses
        for member in some:
            if member.name not in throttled:
                passed += 100.0
                if member.workers[0].record(100.0, at_ms) > 0:
                    throttled.add(member.name)
    assert throttled == {"edge-1", "edge-2"}
    assert passed <= 1.1 * 10 * BOUND


@given(
    sizes=st.lists(st.integers(1, 1_000), min_size=1, max_size=20),
    factor=st.integers(1, 8),
    lag_ms=st.integers(1, 2_000),
    data=st.data(),
)
def test_a_burst_is_assumed_exactly_whatever_the_lag_is(sizes: list[int], factor: int, lag_ms: int, data: st.DataObject) -> None:
    """In a short burst in which the others forward as this member does, known and assumed units are all that passed."""
    end_ms = max(FORWARDED_MS, NEW_LAGS * lag_ms) - lag_ms
    queue, here, known = Queue(factor, lag_ms), 0, 0
    queue.unknown(0.0, 0.0, 0)
    times = sorted(data.draw(st.lists(st.integers(1, end_ms - 1), min_size=len(sizes), max_size=len(sizes))))
    for at_ms, size in zip(times, sizes, strict=True):
        here += size
        known = data.draw(st.integers(known, factor * here))
        assert known + queue.unknown(here, known, at_ms) == factor * here


def test_fetches_in_flight_of_all_workers_of_a_member_are_assumed_of_the_others() -> None:
    """A fetch in flight at one worker counts in what another worker of the same member assumes."""
    one, other = some = [FleetMember(name, 2, BOUND, START_MS, quota_type=ClientQuotaType.FETCH) for name in ("edge-1", "edge-2")]
    for member in some:
        member.lag_ms = LAG_MS
        member.workers[0].record(5_000.0, START_MS)
        for worker in member.workers:
            worker.group.fetch_answer_bytes = 1_000
    exchange(some, START_MS)
    now_ms = START_MS + 3_000
    other.workers[0].group.new_fetch_queue().join(now_ms, lambda: None, now_ms)
    one.workers[0].group.pending += 1_000.0
    exchange(some, now_ms)
    group = one.workers[1].group
    assert isinstance(group, InFleet)
    group.predict_throttle(0.0, now_ms + 10)
    assert group.fleet_usage is not None
    assert group.fleet_usage.assumed == 1_000.0
