"""First step of a roll-up: a task reads file sets of one hour, and adds up their rows by second.

It returns sums for the comparison with the manifests, the rows that cannot be counted, and, for each share of groups and clients, the
sums by second and the waits.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from pipeline.duckdb import decisions
from pipeline.duckdb.database import Database, database
from pipeline.duckdb.quarantine import quarantined
from pipeline.duckdb.seconds import DECISION_SECONDS, USAGE_SECONDS, WAITS
from pipeline.duckdb.small_tables import FACTS
from pipeline.duckdb.usage import see_usage, usage_by_second, usage_sums
from pipeline.errors import BadInputError, IncompleteError
from pipeline.rollup.content.columns import QUARANTINE
from pipeline.rollup.inputs import Hour, Input
from pipeline.rollup.ledger import hour_key
from pipeline.spark.rollup.floors import LONGEST, longest_waits
from pipeline.spark.rollup.names import Names, write_copy
from pipeline.spark.rollup.pieces import SUMS_SHARE, Piece, as_batch
from pipeline.spark.rollup.shares import Shares, divided, tasks_here
from pipeline.spark.worker import settle

Batches = Iterable[pa.RecordBatch]


class Reading(NamedTuple):
    """What all tasks of the step know.

    Attributes:
        place: the metering directory, as a path or URL.
        parts: the file sets of each task.
        hours: all hours of the run.
    """

    place: str
    parts: tuple[tuple[Input, ...], ...]
    hours: tuple[Hour, ...]
    shares: Shares
    names: Names


def reading_here(job: Reading) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that get the numbers of their parts, and read files of a path that all workers see."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from map(as_batch, _pieces(job, job.parts[number], Path(job.place)))
        settle()

    return read


def reading_copies(job: Reading) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that get (position, path, content) of the files of their parts, which Spark has read."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        with contextlib.ExitStack() as opened:
            folders: dict[int, Path] = {}
            for batch in batches:
                for number, path, content in zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True):
                    if number not in folders:
                        folders[number] = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="sluice-rollup-")))
                    _check_copy(job, job.parts[number], path, content)
                    write_copy(folders[number], path, content)
            for number, folder in folders.items():
                yield from map(as_batch, _pieces(job, job.parts[number], folder))
        settle()

    return read


def _check_copy(job: Reading, part: tuple[Input, ...], path: str, content: bytes) -> None:
    named = next((item.manifest, entry) for item in part for entry in item.manifest.files if entry.path == path)
    if hashlib.sha256(content).hexdigest() != named[1].sha256:
        raise IncompleteError(f"{job.place}/{path}: its SHA-256 is not the one in manifest {named[0].file_set}; restore it")


def _pieces(job: Reading, part: tuple[Input, ...], directory: Path) -> Iterator[Piece]:
    """Read the file sets of a part. DuckDB does not notice damaged bytes, so the files' digests are compared first."""
    try:
        with database(tasks_here()) as made:
            made.number_hours(job.hours)
            made.keep_small(directory, Path(job.place), part, FACTS)
            made.read(directory, part, FACTS)
            job.names.put_of_runs(made, {item.manifest.run_id for item in part})
            see_usage(made)
            decisions.see_decisions(made)
            yield from _of(made, job, part[0].hour)
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise BadInputError(f"{job.place}: a file cannot be read ({str(error).splitlines()[0][:300]}); restore it") from error


def _of(made: Database, job: Reading, hour: Hour) -> Iterator[Piece]:
    date = hour[0]
    sums = {"usage": made.table(usage_sums()), "decisions": made.table(decisions.decision_sums())}
    for name, rows in sums.items():
        yield Piece(SUMS_SHARE, name, date, rows)
    if any(sum(rows.column("problems").to_pylist()) for rows in sums.values()):
        aside: list[Mapping[str, Any]] = list(quarantined(made))
        yield Piece(job.shares.first[date], "quarantine", f"date={date}/hour={hour[1]}", pa.Table.from_pylist(aside, schema=QUARANTINE))
    usage = made.table(usage_by_second()).select(USAGE_SECONDS.names).cast(USAGE_SECONDS)
    keys = job.names.principals(usage.column("gold_client_number").to_numpy())
    for share, rows in divided(usage, job.shares.of(date, keys)):
        yield Piece(share, "usage_seconds", date, rows)
    for name, query, schema in (
        ("decision_seconds", decisions.decisions_by_second(), DECISION_SECONDS),
        ("waits", decisions.waits(), WAITS),
    ):
        found = made.table(query).select(schema.names).cast(schema)
        if name == "decision_seconds":
            yield Piece(SUMS_SHARE, LONGEST, hour_key(hour), longest_waits(found))
        for share, rows in divided(found, job.shares.of(date, found.column("gold_group_number").to_numpy())):
            yield Piece(share, name, date, rows)
