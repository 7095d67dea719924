"""Sums packed samples by sensor and time window: first within each file in Arrow, then over files in Spark.

A file of five minutes has few rows per sensor and window after the first step, so the shuffle is small.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.replay.rows import Ints
from pipeline.spark.parallelism import parallelism_of
from pipeline.spark.remote import binary_files, session_of_files
from pipeline.spark.worker import settle

SUMS: Final = {"n": "decisions", "sum": "units", "throttled_n": "throttled", "throttle_ms_sum": "throttle_ms"}
KEY: Final = ("run", "group_ref", "start_ms")
PARTIAL: Final = (
    "run int, group_ref int, start_ms long, decisions long, units long, throttled long, throttle_ms long, utilisation_max double"
)
_ELSEWHERE: Final = {"n": "remote_n", "sum": "remote_sum"}
_COLUMNS: Final = ["group_ref", "sample_start_ms", "max_observed", "bound", *SUMS]


class Source(NamedTuple):
    """A file of samples: its path, run_id and proxy_id, which are constant in the file."""

    path: str
    run_id: str
    proxy_id: str


def sums_of(spark: Any, sources: Sequence[Source], window_ms: int) -> Any:
    """Return a frame with one row for each sensor and window with records. A sample counts in the window in which it begins.

    Columns: run_id, proxy_id, group_ref, start_ms, the columns SUMS, and utilisation_max.
    """
    parts = max(1, min(len(sources), parallelism_of(spark)))
    numbered = _numbered(sources)
    return _added(spark.range(0, len(sources), 1, parts).mapInArrow(_summing(numbered, window_ms), PARTIAL), sources)


def sums_of_held(spark: Any, root: str, sources: Sequence[Source], window_ms: int) -> Any:
    """Return the same of files below a URL, which Spark reads.

    Raises:
        IncompleteError: a file is missing.
    """
    with session_of_files(spark) as own:
        files = binary_files(own, root, [source.path for source in sources])
        return _added(files.mapInArrow(_summing_held(_numbered(sources), len(root) + 1, window_ms), PARTIAL), sources)


def _runs_of(sources: Sequence[Source]) -> list[tuple[str, str]]:
    return sorted({(source.run_id, source.proxy_id) for source in sources})


def _numbered(sources: Sequence[Source]) -> list[tuple[str, int]]:
    """Return the path of each source, and the number of its run."""
    numbers = {run: number for number, run in enumerate(_runs_of(sources))}
    return [(source.path, numbers[source.run_id, source.proxy_id]) for source in sources]


def _added(partial: Any, sources: Sequence[Source]) -> Any:
    from pyspark.sql import functions as F

    added = [F.sum(name).alias(name) for name in SUMS.values()]
    sums = partial.groupBy(*KEY).agg(*added, F.max("utilisation_max").alias("utilisation_max"))
    names = [F.array(*(F.lit(run[at]) for run in _runs_of(sources)))[F.col("run")] for at in (0, 1)]
    return sums.select(names[0].alias("run_id"), names[1].alias("proxy_id"), *KEY[1:], *SUMS.values(), "utilisation_max")


def _summing(sources: Sequence[tuple[str, int]], window_ms: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def sum_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, run = sources[number]
                yield from file_sums(path, run, window_ms).to_batches()
        settle()

    return sum_batches


def _summing_held(
    sources: Sequence[tuple[str, int]], root_length: int, window_ms: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    run_of = dict(sources)

    def sum_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column("path").to_pylist(), batch.column("content"), strict=True):
                yield from file_sums(pa.BufferReader(content.as_buffer()), run_of[path[root_length:]], window_ms).to_batches()
        settle()

    return sum_batches


def file_sums(source: str | pa.NativeFile, run: int, window_ms: int) -> pa.Table:
    """Return rows of PARTIAL of one file: one row per run of equal sensor and window. Files are sorted by sensor and time."""
    with pq.ParquetFile(source, memory_map=isinstance(source, str), pre_buffer=False) as file:
        elsewhere = [name for name in _ELSEWHERE.values() if name in file.schema_arrow.names]
        rows = file.read([*_COLUMNS, *elsewhere], use_threads=False)  # other cores read other files
    column = {name: rows.column(name).to_numpy() for name in _COLUMNS}
    for name in _ELSEWHERE if elsewhere else ():
        column[name] = column[name] - rows.column(_ELSEWHERE[name]).fill_null(0).to_numpy()
    throttle_window = column["sample_start_ms"] // window_ms
    begins = _begins(column["group_ref"], throttle_window)
    bound, observed = column["bound"], column["max_observed"]
    utilisation = np.divide(observed, bound, out=np.full(len(bound), -np.inf), where=bound > 0.0)
    highest = _of_each(np.fmax, utilisation, begins)
    columns = [
        pa.repeat(pa.scalar(run, pa.int32()), len(begins)),
        pa.array(column["group_ref"][begins]),
        pa.array(throttle_window[begins] * window_ms),
        *(pa.array(_of_each(np.add, column[name].astype(np.int64, copy=False), begins)) for name in SUMS),
        pa.array(highest, mask=~(highest > -np.inf)),
    ]
    return pa.table(columns, names=[*KEY, *SUMS.values(), "utilisation_max"])


def _begins(group: Ints, throttle_window: Ints) -> Ints:
    """Return the positions at which the sensor or the window differs from the row before."""
    differs = np.ones(len(group), np.bool_)
    differs[1:] = (group[1:] != group[:-1]) | (throttle_window[1:] != throttle_window[:-1])
    return np.flatnonzero(differs)


def _of_each(add: np.ufunc, values: NDArray[Any], begins: Ints) -> NDArray[Any]:
    return add.reduceat(values, begins) if len(begins) else values
