"""The fast path of a group gives the same results as a measurement on every record."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup
from quota.throttle import narrow_to_int32, throttle_time_ms
from tests.support.memory.naive_rate import NaiveRate

AMOUNTS = st.one_of(
    st.integers(0, 3_000),
    st.floats(0.0, 3_000.0),
    st.sampled_from([0, 1, 999, 1000, 1001, 2**53 - 1, 2**53, 2**60, 1e17, 0.1]),
)
BOUNDS = st.one_of(
    st.floats(1.0, 2_000.0),
    st.sampled_from([0.0, -1.0, 5e-324, 1e-291, 0.5, 1000.0, 1e15, UNLIMITED, float("inf"), float("nan")]),
)
STEPS = st.one_of(st.integers(0, 50), st.integers(0, 1_500), st.sampled_from([999, 1000, 1001, 10_999, 11_000, 11_001, 40_000]))
BACKWARDS = st.one_of(STEPS, st.integers(-15_000, 0), st.integers(-40, 40))


def operations(steps: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, str, Any]]]:
    """Return a strategy of records, un-records, quota changes, looks and purges, each after a step of the clock."""
    step = st.one_of(
        st.tuples(steps, st.just("record"), AMOUNTS),
        st.tuples(steps, st.just("record"), AMOUNTS),
        st.tuples(steps, st.just("record"), AMOUNTS),
        st.tuples(steps, st.just("unrecord"), AMOUNTS),
        st.tuples(steps, st.just("bound"), BOUNDS),
        st.tuples(steps, st.just("look"), AMOUNTS),
        st.tuples(steps, st.just("purge"), st.just(0)),
    )
    return st.lists(step, max_size=80)


def naive_verdict(naive: NaiveRate, bound: float, now_ms: int) -> int:
    """Return the throttle time that Kafka computes after a record."""
    observed, window_ms = naive.measure(now_ms)
    return 0 if observed <= bound else narrow_to_int32(throttle_time_ms(observed, bound, window_ms))


def play(group: QuotaGroup, bound: float, events: list[tuple[int, str, Any]]) -> None:
    """Apply the events to the group and to the oracle, and compare both after each record."""
    naive = NaiveRate(group.num_samples, group.window_ms)
    now_ms = 0
    for step_ms, operation, value in events:
        now_ms += step_ms
        if operation == "bound":
            bound = value
            group.update_bound(bound)
        elif operation == "unrecord":
            group.record_unchecked(-value, now_ms)
            naive.record(-value, now_ms)
        elif operation == "purge":
            group.purge(now_ms)
            naive.measure(now_ms)
        elif operation == "look":  # must change nothing, so the oracle does not get it
            group.would_throttle_ms(value, now_ms)
            group.rate(now_ms)
        else:
            foretold_ms = group.would_throttle_ms(value, now_ms)
            throttle_ms = group.record(value, now_ms)
            naive.record(value, now_ms)
            assert throttle_ms == naive_verdict(naive, bound, now_ms)
            assert foretold_ms == throttle_ms
            assert (group.rate(now_ms), group.window_size_ms(now_ms)) == naive.measure(now_ms)


NUMBERS = st.tuples(st.sampled_from([1, 2, 3, 11]), st.sampled_from([1000, 7]), BOUNDS)


@settings(max_examples=200, deadline=None)
@given(numbers=NUMBERS, events=operations(STEPS))
def test_lazy_is_exact_while_time_goes_on(numbers: tuple[int, int, float], events: list[tuple[int, str, Any]]) -> None:
    """The fast path gives the same verdicts, rates and window sizes as an oracle that measures on every record."""
    num_samples, window_ms, bound = numbers
    play(QuotaGroup({}, bound, num_samples=num_samples, window_ms=window_ms), bound, events)


@settings(max_examples=200, deadline=None)
@given(numbers=NUMBERS, events=operations(BACKWARDS))
def test_lazy_is_exact_when_time_steps_back(numbers: tuple[int, int, float], events: list[tuple[int, str, Any]]) -> None:
    """The fast path gives the same verdicts as the oracle with a clock that jumps back and forth."""
    num_samples, window_ms, bound = numbers
    play(QuotaGroup({}, bound, num_samples=num_samples, window_ms=window_ms), bound, events)


@settings(max_examples=100, deadline=None)
@given(numbers=NUMBERS, events=operations(BACKWARDS))
def test_exact_is_the_oracle(numbers: tuple[int, int, float], events: list[tuple[int, str, Any]]) -> None:
    """A group without the fast path gives the same verdicts as the oracle."""
    num_samples, window_ms, bound = numbers
    play(QuotaGroup({}, bound, num_samples=num_samples, window_ms=window_ms, lazy=False), bound, events)


@settings(max_examples=150, deadline=None)
@given(
    bound=st.floats(1.0, 1e12),
    fractions=st.lists(st.tuples(st.integers(0, 1_200), st.floats(0.0, 1.0)), min_size=1, max_size=60),
)
def test_the_shortcut_is_never_taken_over_the_bound(bound: float, fractions: list[tuple[int, float]]) -> None:
    """Groups with and without the fast path agree on amounts that fill the window up to rounding errors."""
    capacity = bound * 10
    lazy, exact = QuotaGroup({}, bound), QuotaGroup({}, bound, lazy=False)
    now_ms = 0
    for step_ms, fraction in fractions:
        now_ms += step_ms
        room = max(0.0, capacity - lazy.rate(now_ms) * 10)
        amount = room if fraction > 0.7 else room * fraction
        assert lazy.record(amount, now_ms) == exact.record(amount, now_ms)
        assert lazy.recorded_total == exact.recorded_total


@pytest.mark.parametrize(
    ("num_samples", "window_ms", "bound", "events"),
    [
        pytest.param(11, 1000, 1000.0, [(0, 9_990), (-999, 5)], id="before-the-sample-began-the-window-is-shorter"),
        pytest.param(11, 1000, 1000.0, [(0, 9_990), (-1, 5), (-999, 5), (0, 4), (-500, 1)], id="back-and-forth-within-a-sample"),
        pytest.param(11, 1000, 1000.0, [(0, 5_000), (1_000, 4_990), (1, 0), (0, 5)], id="back-into-an-earlier-sample"),
        pytest.param(2, 600, 5e-324, [(0, 5e-324)], id="a-bound-too-small-for-the-margin"),
        pytest.param(11, 1000, UNLIMITED, [(0, 2**53)] + [(0, 1)] * 4 + [(1, 3)], id="integers-beyond-doubles"),
        pytest.param(11, 1000, UNLIMITED, [(0, 2**53 - 2)] + [(0, 1)] * 7, id="integers-that-grow-beyond-doubles"),
        pytest.param(2, 1000, 20.0, [(0, 30), (999, 0), (1_999, 0), (2_000, 0), (2_001, 0)], id="a-sample-expires-under-a-younger-one"),
    ],
)
def test_lazy_is_exact_at_the_edges(num_samples: int, window_ms: int, bound: float, events: list[tuple[int, float]]) -> None:
    """The fast path gives the same verdicts as the oracle in edge cases of each of its conditions."""
    group = QuotaGroup({}, bound, num_samples=num_samples, window_ms=window_ms)
    naive = NaiveRate(num_samples, window_ms)
    for now_ms, amount in events:
        throttle_ms = group.record(amount, now_ms)
        naive.record(amount, now_ms)
        assert throttle_ms == naive_verdict(naive, bound, now_ms)
        assert group.rate(now_ms) == naive.measure(now_ms)[0]
