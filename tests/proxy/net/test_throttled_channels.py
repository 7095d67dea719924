"""One heap and one timer wake each waiter at its last deadline."""

import asyncio
from collections.abc import Callable
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from proxy.net.throttled_channels import WAKES_PER_TURN, ThrottledChannels
from tests.support.memory.memory_connection import START_MS, ManualLoop


class Sleeper:
    """A waiter that records when it is woken and may set another deadline then."""

    def __init__(self, then: Callable[["Sleeper", int], None] | None = None) -> None:
        self.wake_at_ms = 0
        self.woken_ms: list[int] = []
        self._then = then

    def wake(self, now_ms: int) -> None:
        self.woken_ms.append(now_ms - START_MS)
        if self._then is not None:
            self._then(self, now_ms)


def channels() -> tuple[ThrottledChannels, ManualLoop]:
    """Return the heap and the loop that drives it."""
    loop = ManualLoop()
    return ThrottledChannels(cast("asyncio.AbstractEventLoop", loop), lambda: loop.now_ms), loop


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=40))
def test_the_last_deadline_counts(settings: list[tuple[int, int]]) -> None:
    """Each waiter is woken once, at the last deadline that was set for it."""
    timers, loop = channels()
    sleepers = [Sleeper() for _ in range(5)]
    last: dict[int, int] = {}
    for who, at in settings:
        timers.schedule(sleepers[who], START_MS + at if at else 0)
        last[who] = at
    assert len(timers) == sum(1 for at in last.values() if at)
    loop.run_until(START_MS + 100)
    assert [sleeper.woken_ms for sleeper in sleepers] == [[last[who]] if last.get(who) else [] for who in range(5)]
    assert len(timers) == 0


def test_a_waiter_that_sleeps_again_delays_no_other() -> None:
    """A waiter that sets a later deadline while it is woken does not delay the others."""
    timers, loop = channels()
    again = Sleeper(lambda self, now: timers.schedule(self, now + 1_000) if len(self.woken_ms) == 1 else None)
    soon = Sleeper()
    timers.schedule(again, START_MS + 10)
    timers.schedule(soon, START_MS + 20)
    loop.run_until(START_MS + 2_000)
    assert soon.woken_ms == [20]
    assert again.woken_ms == [10, 1_010]


@given(st.lists(st.tuples(st.integers(1, 30), st.lists(st.integers(1, 30), max_size=4)), min_size=1, max_size=12))
def test_each_waiter_wakes_on_time_whatever_the_others_do(plans: list[tuple[int, list[int]]]) -> None:
    """Each waiter is woken exactly at each of its deadlines."""
    timers, loop = channels()
    sleepers = []
    for first, further in plans:
        rest = list(further)
        sleeper = Sleeper(lambda self, now, rest=rest: timers.schedule(self, now + rest.pop(0)) if rest else None)
        timers.schedule(sleeper, START_MS + first)
        sleepers.append(sleeper)
    loop.run_until(START_MS + 1_000)
    for sleeper, (first, further) in zip(sleepers, plans, strict=True):
        expected = [first + sum(further[:count]) for count in range(len(further) + 1)]
        assert sleeper.woken_ms == expected


def test_a_herd_is_woken_in_portions() -> None:
    """More waiters than a turn wakes are all woken at their common deadline."""
    timers, loop = channels()
    herd = [Sleeper() for _ in range(WAKES_PER_TURN * 2 + 1)]
    for sleeper in herd:
        timers.schedule(sleeper, START_MS + 5)
    loop.run_until(START_MS + 5)
    assert all(sleeper.woken_ms == [5] for sleeper in herd)


def test_after_close_no_waiter_is_woken() -> None:
    """After `close` no waiter is woken."""
    timers, loop = channels()
    sleeper = Sleeper()
    timers.schedule(sleeper, START_MS + 5)
    timers.close()
    loop.run_until(START_MS + 10)
    assert sleeper.woken_ms == []
