"""One process of the pipeline's bench: pinned to its cores, one Spark session; it runs commands of its parent and prints their times.

python -m bench.pipeline.arms CORES      a line of input is WHAT:DIRECTORY, one of output is JSON
"""

import functools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from bench.pipeline import loop as pipeline_loop
from bench.pipeline.measured_command import cpu_seconds
from pipeline.duplicate_columns import DUPLICATE_COLUMNS
from pipeline.memory import keep_memory
from pipeline.session_settings import SessionSettings
from pipeline.spark.session import session
from pipeline.spark.validation.validate import local_runs, validate_runs
from pipeline.validation.local import validate


def main() -> int:
    """Work until the input ends."""
    cores = int(sys.argv[1])
    keep_memory()  # as the commands do without Spark, and as its workers do
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    with session(SessionSettings(f"local[{cores}]")) as spark:
        for line in sys.stdin:
            what, directory = line.strip().split(":")
            print(json.dumps(_timed(spark, what, Path(directory))), flush=True)
    return 0


def _timed(spark: Any, what: str, directory: Path) -> dict[str, Any]:
    began, began_cpu = time.perf_counter(), cpu_seconds()
    outcome = ARMS[what](spark, directory)
    return {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds() - began_cpu, "outcome": outcome}


def _file_parallel(spark: Any, directory: Path) -> Any:
    verdict = validate_runs(spark, local_runs(directory))
    return [verdict.decisions, verdict.violations]


def _plain(_spark: Any, directory: Path) -> Any:
    return _judged(directory)


def _twice(_spark: Any, directory: Path) -> Any:
    """Run without Spark in another process, twice."""
    return [_two_workers().submit(_judged, directory).result() for _ in range(2)][-1]


def _twice_at_once(_spark: Any, directory: Path) -> Any:
    """Run in two processes, each twice."""
    return list(_two_workers().map(_judged, [directory] * 2))[-1]


@functools.cache
def _two_workers() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), keep_memory)


def _judged(directory: Path) -> list[int]:
    verdict = validate(directory)
    return [verdict.decisions, verdict.violations]


def _every_column(_spark: Any, directory: Path) -> Any:
    """Decode columns that equal another one, too."""
    with mock.patch.dict(DUPLICATE_COLUMNS, clear=True):
        return _judged(directory)


def _each_file_opened(_spark: Any, directory: Path) -> Any:
    """Open small files for each question."""
    with mock.patch("pipeline.file_set.SMALL_BYTES_MAX", -1):
        return _judged(directory)


def _each_alone(_spark: Any, directory: Path) -> Any:
    """Judge small file sets one by one."""
    with mock.patch("pipeline.validation.run_verdicts.FILE_SETS_MAX", 1):
        return _judged(directory)


ARMS: dict[str, Callable[[Any, Path], Any]] = {
    "file-parallel": _file_parallel,
    "in-a-row": _file_parallel,
    "no-spark": _plain,
    "twice": _twice,
    "twice-at-once": _twice_at_once,
    "every-column": _every_column,
    "each-file-opened": _each_file_opened,
    "each-alone": _each_alone,
    "sensor-loop": lambda spark, directory: pipeline_loop.judge_on_spark(spark, directory, pipeline_loop.sensor_loop),
    "group-loop": lambda spark, directory: pipeline_loop.judge_on_spark(spark, directory, pipeline_loop.group_loop),
}

if __name__ == "__main__":
    sys.exit(main())
