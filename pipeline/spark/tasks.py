"""Runs the parts of a job on Spark, one per task. A task gets its own part only, and returns sums, never rows.

Files that only Hadoop knows come through Spark's reader, by one shuffle of each compressed file to each task that needs it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from pipeline.spark.hadoop_files import hadoop_path
from pipeline.spark.placement import packed, unpacked, work_in_tasks
from pipeline.spark.remote import results_at
from pipeline.storage.held import held_directory
from pipeline.storage.paths import is_of_hadoop, share_with_jobs
from pipeline.tasks import Job, R, W
from sluice.object_store import is_url

RESULT: Final = "position int, result binary"


def run_on_spark(spark: Any, job: Job[W, R], parts: Sequence[W], *, by_hadoop: bool = False) -> list[R]:
    """Execute all parts on an existing session; return their results in order.

    Args:
        spark: the session.
        job: what is done.
        parts: of one directory.
        by_hadoop: whether Spark's reader also gets files of object stores, which tasks read by pyarrow otherwise.
    """
    if not parts:
        return []
    directory = parts[0].directory
    if is_of_hadoop(directory) or (by_hadoop and is_url(directory)):
        return _run_at_url(spark, job, parts)
    works = [packed((position, part)) for position, part in enumerate(parts)]
    done = {row["position"]: bytes(row["result"]) for row in work_in_tasks(spark, works, _executor(job), RESULT).collect()}
    return [msgspec.json.decode(done[position], type=job.result) for position in range(len(parts))]


def _run_at_url(spark: Any, job: Job[W, R], parts: Sequence[W]) -> list[R]:
    wanted = {position: part.manifests for position, part in enumerate(parts)}
    works = {position: packed(part) for position, part in enumerate(parts)}
    directory = parts[0].directory
    done = results_at(spark, hadoop_path(spark, directory).location, wanted, functools.partial(_do_with_files, job, directory), works)
    return [msgspec.json.decode(done[position], type=job.result) for position in range(len(parts))]


def _do_with_files(job: Job[W, R], url: str, work: bytes, files: Mapping[str, bytes]) -> bytes:
    directory = held_directory(url, files)
    share_with_jobs(url, directory)
    return msgspec.json.encode(job.do(unpacked(work, job.work)))


def _executor(job: Job[W, R]) -> Callable[[Iterable[bytes]], Iterator[pa.RecordBatch]]:
    def do_all(works: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        for work in works:
            position, part = unpacked(work, tuple[int, job.work])  # type: ignore[name-defined]
            result = pa.array([msgspec.json.encode(job.do(part))], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([position], pa.int32()), result], names=["position", "result"])

    return do_all
