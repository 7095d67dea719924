"""Rows C: latency of clients while metering cannot be written. The content of the files is asserted by tests/scenario."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.faults.bad_disk import BAD_DISK, FULL, STALLED
from bench.faults.tools import Figure, ms, p99, probe
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine
from bench.harness.frames import produce_request

ROUNDS, PROBES = 7, 300
CONNECTIONS, REQUESTS_PER_SECOND = 8, 2_000
NOTICED_S = 1.0
"""Longer than several flushes."""


def c1_full_disk(folder: Path) -> list[Figure]:
    """The disk of the metering files fills up repeatedly, at 2,000 requests/s."""
    return _beside_bad_disk(folder, "C1", FULL)


def c2_stalled_disk(folder: Path) -> list[Figure]:
    """The writer of the metering files stalls repeatedly, at 2,000 requests/s."""
    return _beside_bad_disk(folder, "C2", STALLED)


def _beside_bad_disk(folder: Path, row: str, kind: str) -> list[Figure]:
    trigger = folder / f"bad-disk-{kind}"
    os.environ[BAD_DISK] = str(trigger)
    good, bad, slowest, recovered = [], [], 0.0, 0.0
    engine = Engine()
    stub, port = engine.stub(1)
    try:
        arm = start_sluice(port, folder, flags=["--metering", str(folder / f"metering-{kind}")], module="bench.faults.bad_disk")
        load = engine.load(produce_request(7, filler=200), arm.port, conns=CONNECTIONS, rate=REQUESTS_PER_SECOND)
        try:
            for _ in range(ROUNDS):
                time.sleep(NOTICED_S)
                good.append(p99(probe(arm.port, PROBES)))
                trigger.write_text(kind)
                time.sleep(NOTICED_S)
                times = probe(arm.port, PROBES)
                trigger.unlink()
                recovered = max(recovered, _written_s(arm))
                bad.append(p99(times))
                slowest = max(slowest, *times)
        finally:
            load.stop()
            lost = arm.metric("kafka_sluice_metering_dropped_decisions_total")
            arm.stop()
    finally:
        stub.stop()
        engine.close()
        del os.environ[BAD_DISK]
    return [
        Figure(row, f"p99 of a probe / p99 while the disk is good (medians of {ROUNDS})", median(bad) / median(good), 1.05, "x"),
        Figure(row, "slowest probe meanwhile", ms(slowest), 50, "ms"),
        Figure(row, "written again after the disk is good again, slowest", recovered, 10, "s"),
        Figure(row, "decisions lost", -1 if lost is None else lost, 0, "decisions"),
    ]


def _written_s(arm: Arm) -> float:
    """Return the seconds until decisions are written again."""
    start = time.monotonic()
    before = arm.metric("kafka_sluice_metering_decisions_total") or 0
    while (arm.metric("kafka_sluice_metering_decisions_total") or 0) <= before and time.monotonic() - start < 60:
        time.sleep(0.02)
    return time.monotonic() - start


ROWS: dict[str, Callable[[Path], list[Figure]]] = {"C1": c1_full_disk, "C2": c2_stalled_disk}
