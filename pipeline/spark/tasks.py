"""Runs the parts of a job on Spark, one per task and without a shuffle. A task returns sums, never rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from pipeline.tasks import Job, R, W

TASK: Final = "position int, work binary"
RESULT: Final = "position int, result binary"


def run_on_spark(spark: Any, job: Job[W, R], parts: Sequence[W]) -> list[R]:
    """Execute all parts on an existing session; return their results in order."""
    if not parts:
        return []
    tasks = [(position, msgspec.json.encode(part)) for position, part in enumerate(parts)]
    frame = spark.createDataFrame(tasks, TASK).repartitionByRange(len(tasks), "position")
    done = {row["position"]: bytes(row["result"]) for row in frame.mapInArrow(_executor(job), RESULT).collect()}
    return [msgspec.json.decode(done[position], type=job.result) for position in range(len(tasks))]


def _executor(job: Job[W, R]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def do_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            parts = (msgspec.json.decode(work, type=job.work) for work in batch.column("work").to_pylist())
            encoded = [msgspec.json.encode(job.do(part)) for part in parts]
            yield pa.RecordBatch.from_arrays([batch.column("position"), pa.array(encoded, pa.binary())], names=["position", "result"])

    return do_batches
