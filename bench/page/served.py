"""An admin port whose proxy has very many groups, some of which change: `python -m bench.page.served GROUPS CHANGING`.

Prints the port. Each line that it reads begins a measurement of the event loop's lag, and ends the one before, whose figures it prints as
JSON: how late a timer of 5 ms came, in ms, and the share of a processor. Event loop, garbage collector and switch interval are those of
the proxy.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final

import uvloop

from proxy.app.run import SWITCH_INTERVAL_S
from proxy.base import clock
from proxy.base.host_port import HostPort
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.observe.admin_http import AdminHttp
from proxy.telemetry.garbage import GarbageWatch
from proxy.telemetry.loop_lag import LoopLag
from quota.limits import Rule, RuleKey
from tests.support.memory.proxy_state import FakeState, GroupsOnly

BOUND: Final = 1e6
TIMER_S: Final = 0.005
PARTS: Final = 50
"""Slices of a second in which groups change, so that the load itself does not make the loop late."""


class Groups(GroupsOnly):
    """Groups whose rules do not change, as in a proxy whose quotas nobody changes."""

    @functools.cached_property
    def rules(self) -> Mapping[RuleKey, Rule]:
        return {}


class ManyGroups(FakeState):
    """A proxy with groups of a hundred tenants."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.produce = Groups()
        self.groups: list[EnforcedGroup] = [self.produce.add(f"tenant-{at % 100}", f"client-{at}", BOUND) for at in range(count)]

    def now_ms(self) -> int:
        return clock.now_ms()

    def wall_time_s(self) -> float:
        return clock.wall_time_s()


async def change(state: ManyGroups, changing: int) -> None:
    """Record in some of the groups, each once a second; a fifth of them beyond its quota."""
    chance = random.Random(7)
    busy = chance.sample(state.groups, changing)
    slices = [busy[at::PARTS] for at in range(PARTS)]
    while True:
        for part in slices:
            for at, group in enumerate(part):
                group.record(BOUND * chance.uniform(0.3, 0.9) * (2 if at % 5 == 0 else 1), clock.now_ms())
            await asyncio.sleep(1 / PARTS)


async def watch(late_ms: list[float]) -> None:
    """Add how late a timer comes."""
    while True:
        due = time.perf_counter() + TIMER_S
        await asyncio.sleep(TIMER_S)
        late_ms.append((time.perf_counter() - due) * 1_000)


def figures(late_ms: list[float]) -> Iterator[tuple[str, float]]:
    """Yield the quantiles of a measurement."""
    ordered = sorted(late_ms)
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        yield name, ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def main(count: int, changing: int) -> None:
    """Serve until the input ends."""
    state = ManyGroups(count)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    GarbageWatch(state.counters, lambda generation, ms: None).start()
    admin = AdminHttp(state, HostPort("127.0.0.1", 0), lag=LoopLag())
    address = await admin.start()
    late_ms: list[float] = []
    tasks = [asyncio.create_task(change(state, changing)), asyncio.create_task(watch(late_ms))]
    print(address.port, flush=True)
    began, cpu_s = time.perf_counter(), time.process_time()
    while await asyncio.to_thread(sys.stdin.readline):
        cpu = (time.process_time() - cpu_s) / (time.perf_counter() - began)
        print(json.dumps({**dict(figures(late_ms)), "cpu": cpu}), flush=True)
        late_ms.clear()
        began, cpu_s = time.perf_counter(), time.process_time()
    for task in tasks:
        task.cancel()
    await admin.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), int(sys.argv[2])))
