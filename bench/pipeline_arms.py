"""One process of the pipeline's bench: pinned to its cores, one Spark session, the tasks that it is told, their times as JSON.

python -m bench.pipeline_arms CORES TASK...      TASK is WHAT:DIRECTORY[+DIRECTORY...]:REPEATS; several directories take turns
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import pipeline_loop, pipeline_rollup
from bench.process_tree import cpu_seconds
from pipeline.spark.session import session
from pipeline.spark.sql_form import cross_check
from pipeline.spark.validate import validate_runs
from pipeline.validation.local import checked_runs, validate


def main() -> int:
    """Run the tasks; the first run of each is not counted."""
    cores, *tasks = sys.argv[1:]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    told = []
    with session(f"local[{cores}]") as spark:
        for task in tasks:
            what, directories, repeats = task.split(":")
            for one in _timed(spark, what, directories.split("+"), int(repeats)):
                told.append(one)
                print(
                    f"  {what} {Path(one['directory']).name} on {cores}: {one['seconds']:.2f} s, {one['cpu_seconds']:.2f} s of CPU",
                    file=sys.stderr,
                    flush=True,
                )
    print(json.dumps(told))
    return 0


def _timed(spark: Any, what: str, directories: Sequence[str], repeats: int) -> list[dict[str, Any]]:
    """Run by turns: a machine that becomes slower or faster meanwhile does so to all of them."""
    found: dict[str, dict[str, Any]] = {one: {"times": [], "cpu": []} for one in directories}
    for number in range(repeats + (repeats > 1)):
        for directory, its in found.items():
            began, began_cpu = time.perf_counter(), cpu_seconds()
            its["outcome"] = ARMS[what](spark, Path(directory))
            if number or repeats == 1:
                its["times"].append(time.perf_counter() - began)
                its["cpu"].append(cpu_seconds() - began_cpu)
    return [
        {"what": what, "directory": one, "seconds": min(its["times"]), "cpu_seconds": min(its["cpu"]), "times": its["times"]}
        | {"outcome": its["outcome"]}
        for one, its in found.items()
    ]


def _file_parallel(spark: Any, directory: Path) -> Any:
    verdict = validate_runs(spark, directory, checked_runs(directory))
    return [verdict.decisions, verdict.violations]


def _plain(_spark: Any, directory: Path) -> Any:
    verdict = validate(directory)
    return [verdict.decisions, verdict.violations]


def _in_sql(spark: Any, directory: Path) -> Any:
    told = cross_check(spark, directory, [stem for stems in checked_runs(directory).values() for stem in stems])
    return [told.decisions, told.differences]


ARMS: dict[str, Callable[[Any, Path], Any]] = {
    "file-parallel": _file_parallel,
    "no-spark": _plain,
    "sql": _in_sql,
    "sensor-loop": lambda spark, directory: pipeline_loop.judge_on_spark(spark, directory, pipeline_loop.sensor_loop),
    "group-loop": lambda spark, directory: pipeline_loop.judge_on_spark(spark, directory, pipeline_loop.group_loop),
    "rollup-spark": pipeline_rollup.with_spark,
    "rollup-duckdb": pipeline_rollup.with_duckdb,
}

if __name__ == "__main__":
    sys.exit(main())
