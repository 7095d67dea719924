"""Times of quota stores: many entries at once, one among many, a start, and until another process has a change in force.

`python -m bench.stores [--entries N] [--store file] ...`: prints one line for each store. ZooKeeper and the topic need JDK and Maven.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from proxy.telemetry.garbage import THRESHOLDS
from quota.admin.kraft import Change
from quota.admin.messages import entity_key
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.zookeeper import ZookeeperServer
from tests.support.processes.stores import Place, file_place, topic_place, zookeeper_place

KEY = "producer_byte_rate"
SINGLE = 20
COLUMNS = ("all new", "all changed", "one of them", "seen elsewhere", "all gone", "start", "loop late")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--store", action="append", choices=["file", "zookeeper", "topic"])
    asked = parser.parse_args()
    print(f"{asked.entries} entries; seconds, those of single changes in milliseconds")
    print(f"{'store':<10}" + "".join(f"{column:>16}" for column in COLUMNS))
    for store in asked.store or ["file", "zookeeper", "topic"]:
        with ExitStack() as stack:
            place = _place(store, stack)
            print(f"{store:<10}" + "".join(f"{figure:>16}" for figure in asyncio.run(_measured(place, asked.entries))), flush=True)


def _place(store: str, stack: ExitStack) -> Callable[[], Place]:
    if store == "file":
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return lambda: file_place(directory)
    if store == "zookeeper":
        server = stack.enter_context(ZookeeperServer("bench-zookeeper"))
        return lambda: zookeeper_place(server.address)
    kafka = stack.enter_context(KafkaCluster(name="bench-stores"))
    return lambda: topic_place(kafka.bootstrap, "bench-stores")


async def _measured(make: Callable[[], Place], entries: int) -> list[str]:
    place = make()
    opened, other = await place.open(), await place.open()
    names = [entity_key([("user", f"user-{number}"), ("client-id", "etl")]) for number in range(entries)]
    first, second = ([Change(name, KEY, rate + at) for at, name in enumerate(names)] for rate in (1_000.0, 2_000.0))
    none = [Change(name, KEY, None) for name in names]
    last = second[-1]
    gc.freeze()  # as in `sluice run`: existing entries are not reported at the start, and reads are rare
    gc.set_threshold(*THRESHOLDS)
    late: list[float] = []
    watching = asyncio.create_task(_watch(late))
    new = await _timed(lambda: opened.alter(*first))
    changed = await _timed(lambda: opened.alter(*second))
    await other.until(lambda content: content.quotas.get(last.entity) == {KEY: last.value})
    single, seen = [], []
    for at in range(SINGLE):
        change = Change(names[at * 7 % entries], KEY, 5.0 + at)
        single.append(await _timed(lambda change=change: opened.alter(change)))  # type: ignore[misc]
        seen.append(await other.until(lambda content, change=change: content.quotas[change.entity] == {KEY: change.value}))  # type: ignore[misc]
    third = await _timed(place.open)
    gone = await _timed(lambda: opened.alter(*none))
    watching.cancel()
    await place.close()
    return [
        f"{new:.2f} s",
        f"{changed:.2f} s",
        f"{sorted(single)[SINGLE // 2] * 1e3:.0f} ms",
        f"{max(seen) * 1e3:.0f} ms",
        f"{gone:.2f} s",
        f"{third:.2f} s",
        f"{max(late) * 1e3:.0f} ms",
    ]


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _watch(late: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        late.append(time.perf_counter() - began - 0.005)


if __name__ == "__main__":
    main()
