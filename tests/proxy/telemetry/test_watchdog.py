"""The watchdog detects a blocked event loop and shows its stack."""

import asyncio
import threading
import time

from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.watchdog import Watchdog

HANG_GUARD_SECONDS = 60


class ToldLag(LoopLag):
    """A lag measurement that tells when the event loop has answered."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = asyncio.Event()

    def record(self, lag_ms: float, now_ms: int) -> None:
        super().record(lag_ms, now_ms)
        self.reported.set()


async def test_a_stall_is_reported_once_with_the_stack_of_the_loop() -> None:
    """Each stall of the event loop is reported once, with the stack of the call that blocks it."""
    lag = ToldLag()
    stacks: list[str] = []
    seen = threading.Event()

    def on_stall(stack: str) -> None:
        stacks.append(stack)
        seen.set()

    def a_call_that_blocks() -> None:
        assert seen.wait(HANG_GUARD_SECONDS)

    watchdog = Watchdog(lag, clock_ns=time.monotonic_ns, on_stall=on_stall, period_seconds=0.001, stall_seconds=0.1)
    watchdog.start(asyncio.get_running_loop())
    await asyncio.wait_for(lag.reported.wait(), HANG_GUARD_SECONDS)
    lag.reported.clear()
    a_call_that_blocks()
    await asyncio.wait_for(lag.reported.wait(), HANG_GUARD_SECONDS)
    watchdog.stop()
    await asyncio.to_thread(watchdog.join, HANG_GUARD_SECONDS)
    assert lag.stalls >= 1
    assert any("a_call_that_blocks" in stack for stack in stacks)
    assert len(stacks) == lag.stalls


async def test_work_is_done_in_each_heartbeat() -> None:
    """`on_heartbeat` is called again and again, also after it has failed."""
    calls = 0
    enough = asyncio.Event()

    def on_heartbeat() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("the first call fails")
        enough.set()

    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    watchdog = Watchdog(LoopLag(), clock_ns=time.monotonic_ns, on_stall=lambda _: None, on_heartbeat=on_heartbeat, period_seconds=0.001)
    watchdog.start(loop)
    await asyncio.wait_for(enough.wait(), HANG_GUARD_SECONDS)
    watchdog.stop()
    await asyncio.to_thread(watchdog.join, HANG_GUARD_SECONDS)
    assert [type(failure) for failure in failures] == [ValueError]


async def test_the_watchdog_ends_with_its_loop() -> None:
    """The watchdog thread ends without an error when its event loop is closed."""
    loop = asyncio.new_event_loop()
    watchdog = Watchdog(LoopLag(), clock_ns=time.monotonic_ns, on_stall=lambda _: None, period_seconds=0.001, stall_seconds=0.01)
    watchdog.start(loop)
    loop.close()
    await asyncio.to_thread(watchdog.join, HANG_GUARD_SECONDS)
    assert not any(thread.name == "sluice-watchdog" for thread in threading.enumerate())
