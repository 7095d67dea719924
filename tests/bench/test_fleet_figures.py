"""The figures of the bench of fleets."""

import asyncio
import time

import pytest

from bench.fleet.hub_cost import PUBLISH_MS, TOPIC_MS, hub_cost
from bench.fleet.loads import long_run
from bench.fleet.working_loop import WorkingLoop
from proxy.fleet.wire import TOTAL
from proxy.shared_usage.shared_groups import SHARE_MS

WAVE_S = 11


def test_the_long_run_of_a_steady_rate_is_the_rate() -> None:
    """Parts of different lengths count by their lengths."""
    assert long_run([3.0, 6.0, 3.0, 1.5], [1.0, 2.0, 1.0, 0.5]) == pytest.approx(3.0)
    assert long_run([3.0] * 7) == pytest.approx(3.0)


@pytest.mark.parametrize("begin_s", range(WAVE_S))
def test_the_long_run_hardly_depends_on_when_waves_begin(begin_s: int) -> None:
    """Within 45 s, which are four waves and a part of one, it is within one in 200 of the rate."""
    waves = [WAVE_S * ((second + begin_s) % WAVE_S == 0) for second in range(45)]
    assert long_run(waves) == pytest.approx(1.0, abs=0.005)


def test_time_passes_while_nothing_is_ready_and_not_for_work_aside() -> None:
    """The loop jumps to the next timer, and what is done aside takes none of its time."""
    loop = WorkingLoop()

    async def wait() -> None:
        begin_s, processor_s = loop.time(), time.process_time()
        with loop.aside():
            sum(range(1_000_000))
        assert loop.time() - begin_s < (time.process_time() - processor_s) / 2
        await asyncio.sleep(1_000)
        assert loop.time() - begin_s >= 1_000

    try:
        loop.run_until_complete(wait())
    finally:
        loop.close()


def test_events_of_others_happen_at_their_times_and_take_none() -> None:
    """An event of another process happens at its time, wakes what waits for it, and its work takes none of the loop's time."""
    loop, happened_s = WorkingLoop(), []

    async def wait() -> None:
        woken = asyncio.Event()

        def act() -> None:
            happened_s.append(loop.time())
            sum(range(1_000_000))
            woken.set()

        for at_s in (2_000.0, 500.0):
            loop.at(at_s, act)
        processor_s = time.process_time()
        await woken.wait()
        assert len(happened_s) == 1
        assert loop.time() - happened_s[0] < (time.process_time() - processor_s) / 2
        await asyncio.sleep(2_000)

    try:
        loop.run_until_complete(wait())
    finally:
        loop.close()
    assert happened_s == pytest.approx([500.0, 2_000.0])


def test_a_hub_hears_each_group_of_each_member_each_interval() -> None:
    """The bytes are those of all entries, and usage is as old as the intervals and the topic let it be, at least."""
    members, groups = 3, 20
    cost = hub_cost(members, groups, at_bound=True, seconds=3)
    assert cost.bytes_per_second >= 0.95 * (members - 1) * groups * TOTAL.itemsize * 1_000 / PUBLISH_MS
    assert cost.lag_ms >= TOPIC_MS + (PUBLISH_MS + SHARE_MS) / 2 - SHARE_MS
    assert cost.lag_ms_p99 >= TOPIC_MS + PUBLISH_MS - SHARE_MS
    assert 0.0 < cost.core < 1.0
