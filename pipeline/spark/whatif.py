"""What-if tasks on Spark: one per task, no shuffle; what comes back are outcomes by group, never rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from pipeline.whatif.outcome import Outcome
from pipeline.whatif.work import Work, do

TASK: Final = "position int, work binary"
RESULT: Final = "position int, outcomes binary"


def do_on_spark(spark: Any, work: Sequence[Work]) -> list[list[list[Outcome]]]:
    """Do all tasks on a session that is there; return their outcomes in order."""
    if not work:
        return []
    tasks = [(position, msgspec.json.encode(item)) for position, item in enumerate(work)]
    frame = spark.createDataFrame(tasks, TASK).repartitionByRange(len(tasks), "position")
    done = {row["position"]: bytes(row["outcomes"]) for row in frame.mapInArrow(_do_batches, RESULT).collect()}
    return [msgspec.json.decode(done[position], type=list[list[Outcome]]) for position in range(len(tasks))]


def _do_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        encoded = [msgspec.json.encode(do(msgspec.json.decode(work, type=Work))) for work in batch.column("work").to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column("position"), pa.array(encoded, pa.binary())], names=["position", "outcomes"])
