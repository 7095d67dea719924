"""Members that are not heard: their last rates are assumed for some time, and what they report later is not counted twice."""

import pytest

from proxy.fleet.silence import BEGIN_MS, CUT_MS, SILENT_MS
from tests.support.fleet.fleet_members import FleetMember
from tests.support.memory.shared_workers import WINDOW_MS

BOUND = 4_000.0
"""All of it is used, so that each change is published at once."""
START_MS = 1_000_000
STEP_MS = 50
RATE = 2_000.0
"""Units per second of each member."""
STEADY_MS = 60_000


class Pair:
    """Two members with the same steady rate; the second one publishes while it is heard."""

    def __init__(self, *, own_rate: float = RATE) -> None:
        self.own_rate = own_rate
        self.one, self.other = (FleetMember(name, 1, BOUND, START_MS) for name in "ab")
        self.one.assumes_silence = True
        self.now_ms = START_MS
        self.own = self.other_own = 0.0

    def run(self, duration_ms: int, *, is_heard: bool = True, is_used: bool = True) -> None:
        """Let time pass."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms += STEP_MS
            self.one.workers[0].record(self.own_rate * STEP_MS / 1_000, self.now_ms)
            self.own += self.own_rate * STEP_MS / 1_000
            if is_used:
                self.other.workers[0].record(RATE * STEP_MS / 1_000, self.now_ms)
                self.other_own += RATE * STEP_MS / 1_000
            self.one.publish(self.now_ms)
            for data in self.other.publish(self.now_ms) if is_heard else ():
                self.one.receive(data, self.now_ms)

    def elsewhere(self) -> float:
        """Return what the first member has recorded for the other one."""
        (known,) = self.one.known(self.now_ms)
        return known - self.own


def test_a_member_that_falls_silent_is_assumed_to_go_on_for_three_seconds() -> None:
    """The rate of a silent member is assumed for 3 s after its last message, and then 0."""
    pair = Pair()
    pair.run(STEADY_MS)
    heard = pair.elsewhere()
    pair.run(BEGIN_MS - STEP_MS, is_heard=False)
    assert pair.elsewhere() == heard
    pair.run(10_000, is_heard=False)
    assert pair.elsewhere() - heard == pytest.approx(RATE * SILENT_MS / 1_000, rel=0.05)


def test_what_was_assumed_is_not_counted_again_when_it_is_reported() -> None:
    """A member that goes on during its silence reports what was assumed already: the totals are those of a member that was always heard."""
    pair = Pair()
    pair.run(STEADY_MS)
    pair.run(2_500, is_heard=False)
    assert pair.elsewhere() == pytest.approx(pair.other_own, rel=0.01)
    pair.run(STEP_MS)
    assert pair.elsewhere() == pytest.approx(pair.other_own, rel=0.002)
    pair.run(5_000)
    assert pair.elsewhere() == pytest.approx(pair.other_own, rel=0.002)


def test_a_member_that_is_cut_off_assumes_the_last_rates() -> None:
    """A member that hears nobody assumes the last rates of the others for 30 s; after the cut their reports do not exceed a window."""
    pair = Pair()
    pair.run(STEADY_MS)
    heard = pair.elsewhere()
    pair.one.is_cut_off = True
    pair.run(CUT_MS, is_heard=False)
    assert pair.elsewhere() - heard == pytest.approx(RATE * CUT_MS / 1_000, rel=0.05)
    pair.one.is_cut_off = False
    pair.run(STEP_MS)
    assert pair.elsewhere() == pytest.approx(pair.other_own, rel=0.03)


@pytest.mark.parametrize(
    ("own_rate", "assumed"),
    [
        pytest.param(1.5 * RATE, BOUND * RATE / (2.5 * RATE), id="members-above-the-bound"),
        pytest.param(0.8 * RATE, BOUND * RATE / (1.8 * RATE), id="members-nearly-at-the-bound"),
        pytest.param(0.5 * RATE, RATE, id="members-below-the-bound"),
    ],
)
def test_at_the_bound_a_part_of_it_is_assumed(own_rate: float, assumed: float) -> None:
    """Where all members together use the bound, or nearly, the other one is assumed to use its part of it; otherwise its last rate."""
    pair = Pair(own_rate=own_rate)
    pair.run(STEADY_MS)
    heard = pair.elsewhere()
    pair.one.is_cut_off = True
    pair.run(CUT_MS, is_heard=False)
    assert pair.elsewhere() - heard == pytest.approx(assumed * CUT_MS / 1_000, rel=0.03)


def test_an_idle_member_that_was_assumed_to_go_on_costs_at_most_a_window() -> None:
    """What was assumed of a member that used nothing reduces its later reports by at most the units of one window."""
    pair = Pair()
    pair.run(STEADY_MS)
    pair.one.is_cut_off = True
    pair.run(CUT_MS, is_heard=False, is_used=False)
    pair.one.is_cut_off = False
    recorded = pair.elsewhere()
    pair.run(60_000)
    reported = RATE * 60
    assert pair.elsewhere() - recorded >= reported - 1.03 * RATE * 11 * WINDOW_MS / 1_000


def test_a_long_cut_ends_with_equal_shares() -> None:
    """After a minute of a cut a member assumes that each other one uses as much as itself, however much they used before."""
    pair = Pair(own_rate=RATE / 10)
    pair.run(STEADY_MS)
    pair.one.is_cut_off = True
    pair.run(2 * CUT_MS, is_heard=False)
    before = pair.elsewhere()
    pair.run(10_000, is_heard=False)
    assert pair.elsewhere() - before == pytest.approx(RATE / 10 * 10, rel=0.05)
