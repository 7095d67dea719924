"""Windowed sums, averages and token buckets behave as in Kafka in cases that the vectors do not cover."""

import math

import pytest

from quota.groups.mutation_group import MutationGroup
from quota.sensor import Avg, Rate, TokenBucket, WindowedSum


def test_a_rate_of_nothing() -> None:
    """Without a record the rate is 0 over N - 1 windows, and a measurement begins the first sample."""
    rate = Rate(11, 1000)
    assert (rate.rate(5), rate.window_size_ms(5)) == (0.0, 10_000)
    assert (rate.measure(5), rate.window_size_ms(605)) == (0.0, 10_600)


def test_measuring_purges_the_sample_in_use() -> None:
    """A measurement after N silent windows purges the sample in use, and a look does not."""
    rate = Rate(2, 1000)
    rate.record(30, 0)
    assert (rate.rate(2_000), rate.window_size_ms(2_000)) == (0.0, 1_000)
    assert rate.rate(1_999) == pytest.approx(30 / 1.999)
    assert rate.measure(2_000) == 0.0
    assert rate.rate(1_999) == 0.0
    assert rate.recorded_total == 30


def test_sums_are_plain_loops() -> None:
    """Sums are computed in a plain loop as in Java, so that ten times 0.1 is 0.9999999999999999."""
    total = WindowedSum(11, 1000)
    for second in range(10):
        total.record(0.1, second * 1000)
    assert total.peek(9_000) == total.measure(9_000) == 0.9999999999999999


def test_a_mean_of_nothing_is_nan() -> None:
    """An average is NaN before the first value and after the last one has expired."""
    average = Avg(2, 30_000)
    assert math.isnan(average.peek(0))
    average.record(5.0, 0)
    assert average.peek(59_999) == 5.0
    assert math.isnan(average.peek(60_000))
    assert math.isnan(average.measure(60_000))


def test_looking_before_the_first_value_begins_no_sample() -> None:
    """The first window of an average begins with its first value, not with an earlier measurement."""
    average = Avg(2, 30_000)
    assert math.isnan(average.measure(0))
    average.record(1.0, 20_000)
    average.record(3.0, 40_000)  # the same sample, so that both expire together
    assert average.measure(81_000) == 2.0
    assert math.isnan(average.measure(100_000))


def test_a_bucket_on_a_young_clock_is_empty() -> None:
    """A token bucket is empty at time 0 unless an earlier time of its last refill is given."""
    assert TokenBucket(10, 1000, 10.0).measure(100) == 1.0
    assert TokenBucket(10, 1000, 10.0, last_update_ms=-20_000).measure(100) == 100.0


def test_strict_and_permissive() -> None:
    """Without tokens a strict record waits and takes nothing, and a permissive one takes its tokens and waits longer."""
    strict = MutationGroup({}, 10.0, num_samples=10, last_update_ms=-100_000)
    assert [strict.record(90, 0) for _ in range(3)] == [0, 0, 8_000]
    assert (strict.tokens(0), strict.record(1, 5_000)) == (-80.0, 3_000)
    permissive = MutationGroup({}, 10.0, num_samples=10, last_update_ms=-100_000)
    assert [permissive.record_permissive(90, 0) for _ in range(3)] == [0, 8_000, 17_000]


def test_a_bucket_without_tokens_for_ever() -> None:
    """With a quota of 0 the throttle time is the largest long, which narrows to -1 as in Kafka."""
    group = MutationGroup({}, 0.0)
    group.record_unchecked(1, 0)
    assert group.throttle_time_ms(0) == -1
