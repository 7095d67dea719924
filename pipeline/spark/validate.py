"""The validator with one task per stem: no shuffle, so one hot group costs no more than many cold ones.

Each task reads its own files and as much of the earlier ones as its warm-up needs; what comes back is a verdict, never rows.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from pipeline.manifest import Manifest
from pipeline.removed import removed_runs
from pipeline.stem import Stem
from pipeline.validation.local import checked_runs, manifest_hashes
from pipeline.validation.stem_verdict import StemVerdict, judge_stem
from pipeline.validation.verdict import RunKey, Verdict, merge

TASK: Final = "position int, work binary"
OUTCOME: Final = "position int, verdict binary"


class Work(msgspec.Struct, frozen=True):
    """One task: a stem and those before it in its run, as far as they may still matter, the last one first judged."""

    directory: str
    manifests: tuple[Manifest, ...]


def validate(directory: Path, master: str) -> Verdict:
    """Judge every stem of a metering directory on Spark.

    Raises:
        BadInputError, IncompleteError: the directory cannot be judged, or Spark does not start.
    """
    from pipeline.spark.session import session

    runs = checked_runs(directory)
    with session(master) as spark:
        return validate_runs(spark, directory, runs)


def validate_runs(spark: Any, directory: Path, runs: dict[RunKey, list[Stem]]) -> Verdict:
    """Judge stems on a session that is there."""
    order = [(key, number) for key, stems in runs.items() for number in range(len(stems))]
    tasks = [(position, msgspec.json.encode(_work(directory, runs[key], number))) for position, (key, number) in enumerate(order)]
    frame = spark.createDataFrame(tasks, TASK).repartitionByRange(len(tasks), "position")
    verdicts = {row["position"]: bytes(row["verdict"]) for row in frame.mapInArrow(judge_batches, OUTCOME).collect()}
    judged: dict[RunKey, list[tuple[Manifest, StemVerdict]]] = {}
    for position, (key, number) in enumerate(order):
        verdict = msgspec.json.decode(verdicts[position], type=StemVerdict)
        judged.setdefault(key, []).append((runs[key][number].manifest, verdict))
    return merge(judged, manifest_hashes(directory), removed_runs(directory))


def judge_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Work off the tasks of one partition."""
    for batch in batches:
        verdicts = [_judge(work) for work in batch.column("work").to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column("position"), pa.array(verdicts, pa.binary())], names=["position", "verdict"])


def _judge(encoded: bytes) -> bytes:
    work = msgspec.json.decode(encoded, type=Work)
    *before, stem = [Stem(Path(work.directory), manifest) for manifest in work.manifests]
    return msgspec.json.encode(judge_stem(stem, before))


def _work(directory: Path, stems: list[Stem], number: int) -> Work:
    manifests = [stem.manifest for stem in stems[: number + 1]]
    span_ms = 4 * max(
        (int(manifest.settings.get("num_samples", 11)) + 1) * int(manifest.settings.get("window_ms", 1_000)) for manifest in manifests
    )
    recent = [manifest for manifest in manifests[:-1] if manifest.last_ts_ms > manifests[-1].first_ts_ms - span_ms]
    return Work(str(directory.resolve()), (*(recent or manifests[-2:-1]), manifests[-1]))
