"""What a group reports about itself; reading it changes nothing."""

import pytest

from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup
from quota.throttle import throttle_time_ms


def test_verdicts_can_be_worked_out_again() -> None:
    """Each verdict has O, T and W, from which its milliseconds follow; counters add up, and the last 16 verdicts are kept."""
    group = QuotaGroup({"user": "alice"}, 500.0)
    given = [group.record(2_000 + step, 100 * step) for step in range(30)]
    positive = [throttle_ms for throttle_ms in given if throttle_ms > 0]
    assert [verdict.throttle_ms for verdict in group.verdicts] == positive[-16:]
    assert all(throttle_time_ms(v.observed, v.bound, v.window_ms) == v.throttle_ms for v in group.verdicts)
    assert (group.throttle_count, group.throttle_ms_total) == (len(positive), sum(positive))
    assert group.throttled_until_ms == group.verdicts[-1].time_ms + group.verdicts[-1].throttle_ms
    assert [(verdict.time_ms, verdict.amount) for verdict in group.verdicts][-1] == (2_900, 2_029)


def test_looking_changes_nothing() -> None:
    """Reading rates, totals and foretold throttle times never changes later verdicts, although Kafka's measurement would purge samples."""
    watched, unwatched = QuotaGroup({}, 100.0), QuotaGroup({}, 100.0)
    for now_ms in (0, 500, 9_000, 30_000, 30_010, 31_500):
        for look_ms in (now_ms + 60_000, now_ms - 60_000, now_ms):
            watched.rate(look_ms)
            watched.window_size_ms(look_ms)
            watched.would_throttle_ms(1e6, look_ms)
        assert watched.record(900, now_ms) == unwatched.record(900, now_ms)
    assert list(watched.verdicts) == list(unwatched.verdicts)
    assert watched.recorded_total == 6 * 900


def test_what_would_be_is_what_is_then() -> None:
    """The foretold throttle time equals that of the record, over the bound and within it."""
    group = QuotaGroup({}, 1_000.0)
    for now_ms, amount in [(0, 9_000), (100, 2_000), (1_500, 1), (12_600, 50_000), (12_600, 0)]:
        foretold_ms = group.would_throttle_ms(amount, now_ms)
        assert group.record(amount, now_ms) == foretold_ms


def test_a_foretold_delay_is_kept_with_its_numbers() -> None:
    """A foretold verdict equals the verdict of a record of the same amount, and records nothing."""
    waiting, recording = QuotaGroup({}, 1_000.0), QuotaGroup({}, 1_000.0)
    for group in (waiting, recording):
        group.record(9_000, 0)
    assert waiting.predict_throttle(500, 100) == 0
    assert waiting.predict_throttle(4_000, 200) == recording.record(4_000, 200) > 0
    assert list(waiting.verdicts) == list(recording.verdicts)
    assert waiting.recorded_total == 9_000


@pytest.mark.parametrize("records_ms", [(0,), (0, 700), (0, 700, 1_500), (0, 999, 2_500, 9_000), tuple(range(0, 15_000, 500))])
def test_less_counts_from_the_next_expiry_on(records_ms: tuple[int, ...]) -> None:
    """The sum of live samples first decreases at the time of `next_expiry_ms`, and reading it changes nothing."""
    group = QuotaGroup({}, 1_000.0)
    for now_ms in records_ms:
        group.record(2_000, now_ms)
    at_ms = group.next_expiry_ms(records_ms[-1])
    assert at_ms > records_ms[-1]
    sums = [round(group.rate(when_ms) * group.window_size_ms(when_ms)) for when_ms in (records_ms[-1], at_ms - 1, at_ms)]
    assert sums[0] == sums[1] > sums[2]


def test_a_new_bound_acts_on_the_next_evaluation() -> None:
    """900 bytes at once are within 100/s, wait 8 s under a new bound of 50/s, and are within 90/s."""
    group = QuotaGroup({}, 100.0)
    answers = [group.record(900, 0)]
    for bound in (50.0, 90.0):
        group.update_bound(bound)
        answers.append(group.record(0, 0))
    assert answers == [0, 8_000, 0]


def test_totals_count_what_is_taken_back() -> None:
    """The recorded total is all that was recorded minus what was taken back."""
    group = QuotaGroup({})
    for second in range(100):
        group.record(10, second * 1_000)
    group.record_unchecked(-5, 100_000)
    assert group.recorded_total == 995
    assert group.last_record_ms == 100_000


@pytest.mark.parametrize(("bound", "most"), [(1_000.0, 10_000.0), (UNLIMITED, 1.7976931348623157e308)])
def test_what_a_window_holds(bound: float, most: float) -> None:
    """A window holds the bound times N - 1 windows, and the largest double without a quota."""
    assert QuotaGroup({}, bound).max_value_in_window() == most


def test_the_cap_of_request_time() -> None:
    """A capped group waits at most one window, and its verdict has the capped wait."""
    group = QuotaGroup({}, 1.0, cap_ms=1_000)
    assert group.record(100.0, 0) == 1_000
    assert group.verdicts[-1].throttle_ms == 1_000


def test_throttle_times_are_averaged_without_zeros() -> None:
    """The mean throttle time leaves out delays of 0."""
    group = QuotaGroup({})
    for throttle_ms in (0, 100, -3, 300):
        group.record_throttle(throttle_ms, 5)
    assert group.throttle_time is not None
    assert group.throttle_time.peek(6) == 200.0
