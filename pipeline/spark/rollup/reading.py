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
from pipeline.errors import BadInputError, IncompleteError, missing_file
from pipeline.rollup.content.columns import QUARANTINE
from pipeline.rollup.inputs import Hour, Input
from pipeline.rollup.ledger import hour_key
from pipeline.spark.placement import unpacked
from pipeline.spark.remote import OF_WORK
from pipeline.spark.rollup.floors import LONGEST, longest_waits
from pipeline.spark.rollup.names import Names, write_copy
from pipeline.spark.rollup.pieces import SUMS_SHARE, Piece, as_batch
from pipeline.spark.rollup.shares import Shares, divided, tasks_here
from pipeline.spark.worker import settle

Batches = Iterable[pa.RecordBatch]
Part = tuple[Input, ...]
"""The file sets that a task reads, all of an hour."""


class Reading(NamedTuple):
    """What all tasks of the step know.

    Attributes:
        place: the metering directory, as a path or URL.
        hours: all hours of the run.
    """

    place: str
    hours: tuple[Hour, ...]
    shares: Shares
    names: Names


def reading_here(job: Reading) -> Callable[[Iterable[bytes]], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that get their parts, and read files of a path that all workers see."""

    def read(parts: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from map(as_batch, _pieces(job, unpacked(part, Part), Path(job.place)))
        settle()

    return read


def reading_copies(job: Reading) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that get the rows of `files_and_works`: their parts, and files that Spark has read."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        with contextlib.ExitStack() as opened:
            folders: dict[int, _Copies] = {}
            parts: dict[int, Part] = {}
            for batch in batches:
                for number, path, content in zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True):
                    if number not in folders:
                        folders[number] = _Copies(Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="sluice-rollup-"))), {})
                    if path == OF_WORK:
                        parts[number] = unpacked(content, Part)
                    else:
                        folders[number].add(path, content)
            for number, part in parts.items():
                folders[number].check(job.place, part)
                yield from map(as_batch, _pieces(job, part, folders[number].folder))
        settle()

    return read


class _Copies(NamedTuple):
    """Copies of files in a folder, with the digest of each by its path."""

    folder: Path
    digests: dict[str, str]

    def add(self, path: str, content: bytes) -> None:
        write_copy(self.folder, path, content)
        self.digests[path] = hashlib.sha256(content).hexdigest()

    def check(self, place: str, part: Part) -> None:
        """Compare the files with the manifests.

        Raises:
            IncompleteError: a file is missing or has changed.
        """
        for item in part:
            for entry in item.manifest.files:
                if entry.path not in self.digests:
                    raise missing_file(f"{place}/{entry.path}", item.manifest.file_set)
                if self.digests[entry.path] != entry.sha256:
                    raise IncompleteError(
                        f"{place}/{entry.path}: its SHA-256 is not the one in manifest {item.manifest.file_set}; restore it"
                    )


def _pieces(job: Reading, part: Part, directory: Path) -> Iterator[Piece]:
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
