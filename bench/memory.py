"""Memory of one process at the start and with 1,000 idle connections: python -m bench.memory.

The bench prints resident memory, and the part of it that is not backed by a file (`Anonymous` in /proc/PID/smaps_rollup), in MiB.
"""

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.cost.memory import ask
from bench.harness.arms import Arm, start_pump, start_sluice
from bench.harness.engine import Engine
from bench.harness.frames import api_versions_request

CONNECTIONS = 1_000
SETTLE_SECONDS = 2.0
SHOWN = ("Rss", "Anonymous")
RESIDENT_MIB_MAX = 55.0
ARMS: dict[str, Callable[[int, Path], Arm]] = {
    "pump": start_pump,
    "sluice, no admin port": functools.partial(start_sluice, learn=False, administered=False),
    "sluice": functools.partial(start_sluice, learn=False),
}


def memory_mib(pid: int) -> dict[str, float]:
    """Return the kernel's counters of a process, in MiB, by the names of smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(value.split()[0]) / 1024 for name, value in (line.split(":") for line in lines)}


def measure(engine: Engine, start: Callable[[int, Path], Arm], upstream_port: int) -> list[dict[str, float]]:
    """Return the memory at the start, and with idle connections that have sent one request."""
    arm = start(upstream_port, engine.folder)
    try:
        time.sleep(SETTLE_SECONDS)
        at_start = memory_mib(arm.process.pid)
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                ask(stack, arm.port, api_versions_request(3).whole())
            time.sleep(SETTLE_SECONDS)
            return [at_start, memory_mib(arm.process.pid)]
    finally:
        arm.stop()


def main() -> None:
    """Print a table."""
    engine = Engine()
    stub, port = engine.stub(1)
    print(f"| process | at the start | anonymous | with {CONNECTIONS:,} idle connections | anonymous | |\n|---|--:|--:|--:|--:|---|")
    try:
        for name, start in ARMS.items():
            figures = measure(engine, start, port)
            verdict = "ok" if figures[0]["Rss"] <= RESIDENT_MIB_MAX else "miss"
            shown = [f"{figure[key]:.1f} MiB" for figure in figures for key in SHOWN]
            print(f"| {name} | {' | '.join(shown)} | {verdict if name != 'pump' else ''} |", flush=True)
    finally:
        stub.stop()
        engine.close()
    print(f"goal at the start: resident <= {RESIDENT_MIB_MAX:g} MiB")


if __name__ == "__main__":
    main()
