"""The corrections of the schedule that charges a fetch when it goes (ADR 12)."""

from fractions import Fraction
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.paced.schedule import Reservation, ReservingSchedule
from quota.paced_schedule import SECOND_NS, cost_ns


class Step(NamedTuple):
    """A request that comes after a pause, and the number of steps after which its final size is known (0: it is known at once)."""

    pause_ns: int
    reserved: int
    used: int
    answered_after: int


def steps(*, grows: bool) -> st.SearchStrategy[list[Step]]:
    """Return requests with pauses of up to two seconds, and answers in any order."""
    amounts = st.one_of(st.integers(0, 3_000), st.sampled_from([0, 1, 1_000, 100_000]))
    pauses = st.one_of(st.just(0), st.integers(0, 50_000_000), st.integers(0, 2 * SECOND_NS))
    step = st.builds(Step, pauses, amounts, amounts, st.integers(0, 6))
    if not grows:
        step = step.map(lambda one: one._replace(used=min(one.used, one.reserved)))
    return st.lists(step, max_size=40)


class Run:
    """Requests that each pass as soon as the schedule lets them."""

    def __init__(self, bound: float, burst_ns: int) -> None:
        self.bound = bound
        self.schedule = ReservingSchedule(burst_ns)
        self.now_ns = 0
        self.passed: list[tuple[int, int]] = []
        """Time and final size of each request."""
        self.open: list[tuple[int, Reservation, int]] = []
        """Step at which the answer comes, reservation and final size."""

    def take(self, number: int, step: Step) -> None:
        """Let a request pass, after the answers that come before it."""
        self.now_ns += step.pause_ns
        for due, reservation, used in [one for one in self.open if one[0] <= number]:
            self.schedule.correct(reservation, cost_ns(used, self.bound))
            self.open.remove((due, reservation, used))
        self.now_ns += self.schedule.wait_ns(self.now_ns)
        cost = cost_ns(step.reserved, self.bound)
        if step.answered_after:
            self.open.append((number + step.answered_after, self.schedule.reserve(cost, self.now_ns), step.used))
        else:
            self.schedule.charge(cost, self.now_ns)
        self.passed.append((self.now_ns, step.used if step.answered_after else step.reserved))

    def finish(self) -> None:
        """Let all answers come."""
        for _, reservation, used in self.open:
            self.schedule.correct(reservation, cost_ns(used, self.bound))
        self.open.clear()


def plain_virtual_ns(passed: list[tuple[int, int]], bound: float) -> int:
    """Return the virtual time of the textbook's algorithm, for requests whose sizes are known from the start."""
    virtual_ns = 0
    for at_ns, amount in passed:
        virtual_ns = max(virtual_ns, at_ns) + cost_ns(amount, bound)
    return virtual_ns


@settings(max_examples=200)
@given(steps=steps(grows=True), bound=st.sampled_from([1.0, 7.0, 1_000.0, 1e5]), burst_ns=st.sampled_from([0, 1, 10**6, SECOND_NS]))
def test_a_correction_leaves_the_schedule_of_known_sizes(steps: list[Step], bound: float, burst_ns: int) -> None:
    """When all sizes are known, the schedule is that of the plain algorithm with these sizes at the same times."""
    run = Run(bound, burst_ns)
    for number, step in enumerate(steps):
        run.take(number, step)
    run.finish()
    assert run.schedule.lead_ns(0) == plain_virtual_ns(run.passed, bound)


@settings(max_examples=200)
@given(steps=steps(grows=False), bound=st.sampled_from([1.0, 7.0, 1_000.0, 1e5]), burst_ns=st.sampled_from([0, 1, 10**6, SECOND_NS]))
def test_no_span_passes_more_than_bound_and_burst(steps: list[Step], bound: float, burst_ns: int) -> None:
    """In any span L, at most bound x (L + burst) and one request pass, counted with the sizes that the answers had."""
    run = Run(bound, burst_ns)
    for number, step in enumerate(steps):
        run.take(number, step)
    for first, (begin_ns, _) in enumerate(run.passed):
        before_last = 0
        for (_, amount), (end_ns, _) in zip(run.passed[first:], run.passed[first + 1 :], strict=False):
            before_last += amount
            assert before_last * SECOND_NS <= Fraction(bound) * (end_ns - begin_ns + burst_ns)


def test_returned_time_does_not_exceed_what_an_idle_schedule_has() -> None:
    """A fetch that reserved ten seconds and returned nothing gives back no more than the burst: idle time is not saved."""
    schedule = ReservingSchedule(SECOND_NS)
    reservation = schedule.reserve(10 * SECOND_NS, 0)
    schedule.charge(SECOND_NS // 2, 9_500_000_000)
    assert schedule.lead_ns(9_500_000_000) == SECOND_NS
    schedule.correct(reservation, 0)
    assert schedule.lead_ns(9_500_000_000) == SECOND_NS // 2
