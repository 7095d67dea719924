"""Upgrades in place under load: connections refused, and the worst ten seconds of a group at its bound."""

import asyncio
import contextlib
import json
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import HOST, Engine
from bench.harness.frames import api_versions_request, produce_request

BOUND = 1_000_000
"""The bound, in bytes per second, of the group of all connections."""
PRODUCE_BYTES = 20_000
PRODUCERS = 16
COMERS = 4
"""Clients that connect, send one request and close, repeatedly."""
PAUSE_S = 0.01
WARM_S = 15.0
"""The first window of a group, which lets a burst pass."""
ALONE_S = 30.0
STRETCH_S = 10.0
UPGRADE_S_MAX = 120.0


@dataclass
class Upgrades:
    """The result.

    Attributes:
        refused: connections that were refused; `unanswered`: those that closed before the answer to their first request.
        served: those that were answered.
        took_ms: from the signal until the new version accepts; longest_ms: the longest that a client waited for connection and answer.
        alone, worst: the largest number of bytes in 10 s, over the bound: before the first upgrade, and after it.
    """

    refused: int = 0
    unanswered: int = 0
    served: int = 0
    took_ms: list[float] = field(default_factory=list)
    longest_ms: float = 0.0
    alone: float = 0.0
    worst: float = 0.0


def upgrades_under_load(engine: Engine, workers: int, count: int) -> Upgrades:
    """Upgrade this many times."""
    with ExitStack() as stack:
        stub, stub_port = engine.stub(1)
        stack.callback(stub.stop)
        arm = start_sluice(stub_port, engine.folder, produce=BOUND, flags=["--workers", str(workers), "--enforcement", "mute"])
        stack.callback(_stop_all, arm)
        return asyncio.run(_run(arm, count))


async def _run(arm: Arm, count: int) -> Upgrades:
    seen, passed = Upgrades(), []
    tasks = [asyncio.ensure_future(_produce(arm.port, passed)) for _ in range(PRODUCERS)]
    tasks += [asyncio.ensure_future(_come_and_go(arm.port, seen)) for _ in range(COMERS)]
    await asyncio.sleep(WARM_S)
    began = time.monotonic()
    await asyncio.sleep(ALONE_S)
    first = time.monotonic()
    for _ in range(count):
        seen.took_ms.append(await _upgrade(arm))
    await asyncio.sleep(STRETCH_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    seen.alone = _worst([one for one in passed if began <= one[0] < first])
    seen.worst = _worst([one for one in passed if one[0] >= first])
    return seen


async def _upgrade(arm: Arm) -> float:
    """Signal the newest supervisor; wait until the next one accepts and this one has ended. Return how long the former took, in ms."""
    before = supervisors(arm)
    began = time.monotonic()
    os.kill(before[-1], signal.SIGUSR2)
    while len(supervisors(arm)) == len(before):
        if time.monotonic() - began > UPGRADE_S_MAX or arm.log.read_text().count("upgrade_failed"):
            raise RuntimeError(f"the new version does not take over: {arm.log.read_text()[-2_000:]}")
        await asyncio.sleep(0.01)
    took_ms = (time.monotonic() - began) * 1_000
    while _is_running(before[-1], arm):  # noqa: ASYNC110 - another process's end
        await asyncio.sleep(0.05)
    return took_ms


def supervisors(arm: Arm) -> list[int]:
    """Return all supervisor processes, the newest last."""
    lines = [json.loads(line) for line in arm.log.read_text().splitlines() if '"took_over"' in line]
    return [arm.process.pid, *(line["pid"] for line in lines)]


def _is_running(pid: int, arm: Arm) -> bool:
    if pid == arm.process.pid:
        return arm.process.poll() is None
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0] != "Z"
    return False


def _stop_all(arm: Arm) -> None:
    newest = supervisors(arm)[-1]
    with contextlib.suppress(ProcessLookupError):
        os.kill(newest, signal.SIGTERM)
    arm.stop()
    while _is_running(newest, arm):
        time.sleep(0.05)


async def _produce(port: int, passed: list[tuple[float, int]]) -> None:
    """Send requests in sequence; connect again when the connection closes."""
    frame = produce_request(7, filler=PRODUCE_BYTES).whole()
    while True:
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
            while True:
                writer.write(frame)
                await _answer(reader)
                passed.append((time.monotonic(), len(frame)))
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(PAUSE_S)


async def _come_and_go(port: int, seen: Upgrades) -> None:
    frame = api_versions_request(3).whole()
    while True:
        began = time.monotonic()
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            seen.refused += 1
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            writer.write(frame)
            await _answer(reader)
            seen.served += 1
        except (OSError, asyncio.IncompleteReadError):
            seen.unanswered += 1
        writer.close()
        seen.longest_ms = max(seen.longest_ms, (time.monotonic() - began) * 1_000)
        await asyncio.sleep(PAUSE_S)


async def _answer(reader: asyncio.StreamReader) -> None:
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def _worst(passed: list[tuple[float, int]]) -> float:
    """Return the most bytes of 10 s over what the bound allows in 10 s."""
    most = total = begin = 0
    for time_s, size in passed:
        total += size
        while passed[begin][0] <= time_s - STRETCH_S:
            total -= passed[begin][1]
            begin += 1
        most = max(most, total)
    return most / (BOUND * STRETCH_S)
