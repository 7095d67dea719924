"""The schedule of a paced group, one request at a time and many at once."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota.paced_costs import costs_ns, costs_of_groups_ns, leads_before_ns, leads_of_schedules_ns
from quota.paced_schedule import BYTES_NS, ENDLESS_NS, HANDLER_TIME_NS, SECOND_NS, PacedSchedule, cost_ns, rescaled_ns

BOUNDS = st.one_of(st.floats(2.0, 1e9), st.sampled_from([3.0, 7.5, 1e6, 2e6]))
AMOUNTS = st.integers(0, 2**31 - 1)
PAUSES = st.one_of(st.just(0), st.integers(0, 50_000_000), st.integers(0, 2 * SECOND_NS))
REQUESTS = st.lists(st.tuples(PAUSES, st.integers(0, 100_000)), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("amount", "bound", "expected_ns"),
    [
        pytest.param(0, 1e6, 0, id="nothing-is-free"),
        pytest.param(1_000_000, 2e6, 500_000_000, id="half-a-second"),
        pytest.param(1, 3.0, 333_333_334, id="rounded-up"),
        pytest.param(1, 1e12, 1, id="at-least-a-nanosecond"),
        pytest.param(1, float("inf"), 0, id="unlimited"),
        pytest.param(0, 0.0, ENDLESS_NS, id="a-bound-of-0"),
        pytest.param(1, -1.0, ENDLESS_NS, id="a-bound-below-0"),
        pytest.param(1, float("nan"), ENDLESS_NS, id="not-a-number"),
        pytest.param(1, 1e-300, ENDLESS_NS, id="longer-than-anything"),
    ],
)
def test_cost(amount: int, bound: float, expected_ns: int) -> None:
    """The cost is ceil(amount x 1e9 / bound), with the exact value of the double."""
    assert cost_ns(amount, bound) == expected_ns
    assert costs_ns(np.array([amount]), np.array([bound])).tolist() == [expected_ns]


@given(amount=AMOUNTS, bound=BOUNDS)
def test_cost_is_exact(amount: int, bound: float) -> None:
    """The cost is the smallest whole number of nanoseconds in which the bound passes the amount."""
    exact = Fraction(amount) * SECOND_NS / Fraction(bound)
    assert 0 <= cost_ns(amount, bound) - exact < 1


@given(handler_ns=AMOUNTS, percent=st.floats(1e-3, 1e4))
def test_the_cost_of_handler_time_is_exact(handler_ns: int, percent: float) -> None:
    """The cost of handler time is the smallest whole number of nanoseconds in which that percentage of one thread has it."""
    exact = Fraction(handler_ns) / (Fraction(percent) / 100)
    assert 0 <= cost_ns(handler_ns, percent, HANDLER_TIME_NS) - exact < 1


@pytest.mark.parametrize("unit_ns", [BYTES_NS, HANDLER_TIME_NS])
@given(pairs=st.lists(st.tuples(st.one_of(AMOUNTS, st.integers(2**31, 2**40)), st.one_of(BOUNDS, st.floats(1e-3, 2.0))), max_size=20))
def test_many_costs_are_those_of_one_by_one(unit_ns: int, pairs: list[tuple[int, float]]) -> None:
    """Costs that are computed together equal costs that are computed one by one."""
    amounts, bounds = np.array([amount for amount, _ in pairs], np.int64), np.array([bound for _, bound in pairs], np.float64)
    expected = [cost_ns(*pair, unit_ns) for pair in pairs]
    assert costs_ns(amounts, bounds, unit_ns).tolist() == expected


@pytest.mark.parametrize("unit_ns", [BYTES_NS, HANDLER_TIME_NS])
@given(
    groups=st.lists(
        st.tuples(st.lists(st.one_of(AMOUNTS, st.integers(2**31, 2**40)), min_size=1, max_size=5), st.one_of(BOUNDS, st.floats(0.0, 2.0))),
        min_size=1,
        max_size=8,
    )
)
def test_costs_of_groups_are_those_of_one_by_one(unit_ns: int, groups: list[tuple[list[int], float]]) -> None:
    """Costs of groups that are computed together equal costs that are computed one by one, and none is above the highest one."""
    amounts = np.array([amount for its, _ in groups for amount in its], np.int64)
    bounds = np.array([bound for _, bound in groups], np.float64)
    numbers, largest = np.array([len(its) for its, _ in groups]), np.array([max(its) for its, _ in groups])
    costs, highest_ns = costs_of_groups_ns(amounts, bounds, numbers, largest, unit_ns)
    assert costs.tolist() == [cost_ns(amount, bound, unit_ns) for its, bound in groups for amount in its]
    assert highest_ns >= costs.max()


@settings(max_examples=200)
@given(requests=REQUESTS, bound=st.sampled_from([1.0, 7.0, 1_000.0, 1e5]), burst_ns=st.sampled_from([0, 1, 10**6, SECOND_NS]))
def test_no_span_passes_more_than_bound_and_burst(requests: list[tuple[int, int]], bound: float, burst_ns: int) -> None:
    """In any span L, at most bound x (L + burst) and one request pass."""
    schedule, now_ns, passed = PacedSchedule(burst_ns), 0, []
    for pause_ns, amount in requests:
        now_ns += pause_ns
        now_ns += schedule.wait_ns(now_ns)
        schedule.charge(cost_ns(amount, bound), now_ns)
        passed.append((now_ns, amount))
    for first, (begin_ns, _) in enumerate(passed):
        before_last = 0
        for (_, amount), (end_ns, _) in pairwise(passed[first:]):
            before_last += amount
            assert before_last * SECOND_NS <= Fraction(bound) * (end_ns - begin_ns + burst_ns)


@settings(max_examples=200)
@given(requests=REQUESTS, first_lead_ns=st.integers(0, 3 * SECOND_NS))
def test_many_leads_are_those_of_one_by_one(requests: list[tuple[int, int]], first_lead_ns: int) -> None:
    """Leads that are computed together equal those of a schedule that is charged one by one."""
    times_ns = np.cumsum([pause_ns for pause_ns, _ in requests]) + 10**18
    costs = np.array([cost_ns(amount, 1e5) for _, amount in requests])
    schedule, expected = PacedSchedule(0), []
    schedule.virtual_ns = int(times_ns[0]) + first_lead_ns
    for now_ns, cost in zip(times_ns.tolist(), costs.tolist(), strict=True):
        expected.append(schedule.lead_ns(now_ns))
        schedule.charge(cost, now_ns)
    assert leads_before_ns(times_ns, costs, first_lead_ns).tolist() == expected


@given(st.integers(0, 10**13), st.floats(1e-3, 1e12), st.floats(1e-3, 1e12))
def test_a_rescaled_lead_is_exact(lead_ns: int, before: float, after: float) -> None:
    """A lead under another bound is that times the old bound over the new one, rounded up, up to the highest cost."""
    exact = Fraction(lead_ns) * Fraction(before) / Fraction(after)
    rounded = min(-(-exact.numerator // exact.denominator), ENDLESS_NS)
    assert rescaled_ns(lead_ns, before, after) == (lead_ns if before == after else rounded)


@pytest.mark.parametrize("bound", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bound_that_passes_nothing_or_everything_changes_no_lead(bound: float) -> None:
    """A change to or from a bound that is not above 0, or not finite, leaves the lead as it is."""
    assert (rescaled_ns(7, 1_000.0, bound), rescaled_ns(7, bound, 1_000.0)) == (7, 7)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 2**33), st.integers(1, 2**52)), min_size=1, max_size=20))
def test_costs_near_whole_numbers_are_exact(pairs: list[tuple[int, int]]) -> None:
    """Where amount x 1e9 / bound is so near to a whole number that floating point cannot decide, costs are exact, too."""
    amounts = np.array([amount for amount, _ in pairs], np.int64)
    bounds = np.array([amount * SECOND_NS / near_ns for amount, near_ns in pairs], np.float64)
    assert costs_ns(amounts, bounds).tolist() == [cost_ns(*pair) for pair in zip(amounts.tolist(), bounds.tolist(), strict=True)]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(REQUESTS, st.integers(0, 3 * SECOND_NS)), min_size=1, max_size=4), st.sampled_from([1e5, 1e-6]), st.integers(1, 50)
)
def test_leads_of_several_schedules_are_those_of_each(
    schedules: list[tuple[list[tuple[int, int]], int]], bound: float, row_length: int
) -> None:
    """Leads of several schedules that are computed together equal those of each, also where their numbers take more than 62 bits.

    Those of an idle schedule are at most 0.
    """
    lengths = [len(requests) for requests, _ in schedules]
    times = [np.cumsum([pause_ns for pause_ns, _ in requests]) + 10**18 for requests, _ in schedules]
    costs = [np.array([min(cost_ns(amount, bound), 2**55) for _, amount in requests]) for requests, _ in schedules]
    firsts = [lead_ns for _, lead_ns in schedules]
    expected = [lead for its in zip(times, costs, firsts, strict=True) for lead in leads_before_ns(*its).tolist()]
    begins = np.cumsum([0, *lengths[:-1]])
    all_times = np.concatenate(times)
    span_ns = int(all_times.max() - all_times.min())
    rows = np.union1d(begins, np.arange(0, len(all_times), row_length))  # long rows are reduced without a running maximum
    all_costs = np.concatenate(costs)
    leads = leads_of_schedules_ns(all_times, all_costs, begins, np.array(firsts), span_ns, rows, highest_cost_ns=int(all_costs.max()))
    assert np.maximum(leads.before_rows_ns, 0).tolist() == np.array(expected)[rows].tolist()
    assert leads.highest_ns >= max(expected)
    assert np.maximum(leads.of_requests(), 0).tolist() == expected


def test_a_busy_schedule_passes_the_bound() -> None:
    """A client that always has more to send passes exactly its bound after the burst: here one request of 100 kB in each 50 ms."""
    schedule, now_ns, times = PacedSchedule(SECOND_NS), 0, []
    for _ in range(60):
        now_ns += schedule.wait_ns(now_ns)
        schedule.charge(cost_ns(100_000, 2e6), now_ns)
        times.append(now_ns)
    assert times[:21] == [0] * 21
    assert {later - earlier for earlier, later in pairwise(times[20:])} == {50_000_000}
