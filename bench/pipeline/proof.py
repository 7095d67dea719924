"""The proof that the validator is right: the decisions of the reference loop beside those that it recomputes; and traces for it.

The functions that a pool of processes runs are here, since its processes do not import the module that was started with `-m`.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.metering.trace import Shape, decide, totals, write

QUOTA_TYPES: Final = ("Produce", "Fetch", "Request", "Connection", "ControllerMutation")
TAKEN_BACK: Final = {"Fetch": 0.05, "Connection": 0.02, "ControllerMutation": 0.02}
WINDOWS: Final = ((2, 250), (7, 2_000), (61, 500))


def proof(folder: Path, events: int) -> Iterator[dict[str, Any]]:
    """Compare the decisions of the reference loop, which measures at each record, with the validator's; one trace per core at a time."""
    shapes = [Shape(events, quota_type=name, unrecord_share=TAKEN_BACK.get(name, 0.0), lazy=False) for name in QUOTA_TYPES]
    shapes += [Shape(events // 10, num_samples=n, window_ms=w, lazy=False, seed=n) for n, w in WINDOWS]
    with _workers() as pool:
        yield from pool.map(_compared, [folder] * len(shapes), shapes)


def _compared(folder: Path, shape: Shape) -> dict[str, Any]:
    from pipeline.validation.local import validate

    began = time.perf_counter()
    name = f"proof-{shape.quota_type}-{shape.num_samples}x{shape.window_ms}"
    trace = make(folder, name, shape)
    verdict = validate(trace)
    row = {
        "quota_type": shape.quota_type,
        "window": f"{shape.num_samples} x {shape.window_ms} ms",
        "events": shape.events,
        "decisions": verdict.decisions,
        "throttled": totals(trace)["throttled"],
        "by_fold": verdict.replayed_exactly,
        "differences": verdict.violations,
    }
    print(f"  {row} {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return row


def lines_of_proof(rows: list[dict[str, Any]]) -> list[str]:
    """Return the results in Markdown."""
    lines = [
        "| decisions of | samples x window | events | judged | throttled | by the fold of doubles | differences |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = " | ".join(f"{row[name]:,}" for name in ("events", "decisions", "throttled", "by_fold", "differences"))
        lines.append(f"| {row['quota_type']} | {row['window']} | {numbers} |")
    return lines


def make_all(folder: Path, shapes: dict[str, Shape]) -> None:
    """Make the missing traces, one per core at a time."""
    with _workers() as pool:
        list(pool.map(make, [folder] * len(shapes), shapes, shapes.values()))


def make(folder: Path, name: str, shape: Shape) -> Path:
    """Return a trace of a folder. It is made unless it exists."""
    trace = folder / name
    if not trace.exists():
        print(f"  making {name}: {shape.events:,} decisions of {shape.groups:,} groups", file=sys.stderr, flush=True)
        unfinished = folder / f"unfinished-{name}"
        write(unfinished, shape, decide(shape)).rename(trace)
    return trace


def _workers() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn"))
