"""A mutation group reports its waits; the vectors check its arithmetic."""

from quota.groups.group import VERDICTS_MAX
from quota.groups.mutation_group import MutationGroup


def full_bucket() -> MutationGroup:
    """Return a full bucket of 110 tokens, refilled by 10 per second."""
    return MutationGroup({"user": "", "client-id": "etl"}, 10.0, created_ms=0, last_update_ms=-22_000)


def test_waits_are_kept_with_what_led_to_them() -> None:
    """A wait is kept with the values from which it can be recomputed, and a record without a wait is not."""
    group = full_bucket()
    assert group.record(150.0, 0) == 0
    assert group.record(7.0, 1_000) == 3_000
    (wait,) = group.verdicts
    assert (wait.time_ms, wait.amount, wait.observed, wait.bound, wait.window_ms, wait.throttle_ms) == (
        1_000,
        7.0,
        -30.0,
        10.0,
        11_000,
        3_000,
    )
    assert (group.throttled_until_ms, group.throttle_count, group.throttle_ms_total) == (4_000, 1, 3_000)
    assert group.recorded_total == 150


def test_a_permissive_wait_is_kept_too() -> None:
    """A permissive record that waits is counted and kept as a verdict."""
    group = full_bucket()
    assert group.record_permissive(110.0, 0) == 0
    assert group.record_permissive(20.0, 0) == 2_000
    assert [wait.amount for wait in group.verdicts] == [20.0]
    assert group.recorded_total == 130
    assert group.rate(0) == 130 / 30


def test_few_waits_are_kept() -> None:
    """Only the last waits are kept, and all are counted."""
    group = full_bucket()
    group.record(1_000.0, 0)
    for number in range(100):
        group.record(number, 0)
    assert [wait.amount for wait in group.verdicts] == [*range(100 - VERDICTS_MAX, 100)]
    assert group.throttle_count == 100
