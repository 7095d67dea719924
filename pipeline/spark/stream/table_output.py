"""The output of a stream in tables of Iceberg or Delta: rows have the number of their batch, which counts when the table `batches` has it.

Each table gets the rows of a batch by one commit, which names stream and batch. A repeated batch does not write them again. The commit to
`batches` is the last one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError
from pipeline.manifest import FoundManifest
from pipeline.spark.builds.formats import Format
from pipeline.spark.builds.store import errors_of_tables, make_table
from pipeline.storage.paths import AnyPath
from pipeline.stream import ledger
from pipeline.stream.checkpoint import output_of, query_of
from pipeline.stream.judged import Judged
from pipeline.stream.output import Found, divergences_of
from pipeline.stream.result import FINDINGS_MAX, Written
from pipeline.validation.divergence import Divergence

BATCHES: Final = "batches"
_SCHEMA: Final = (
    "query_id string, batch_id long, at_ms long, file_sets array<string>, manifests array<string>,"
    " divergences long, findings string, judged string"
)
"""One row for each batch. A row without a batch has the number of divergences that a call has reported."""


class _Held(NamedTuple):
    """Computed rows of a table.

    Attributes:
        rows: the rows, of any session.
        view: a name for them that all sessions know.
    """

    rows: DataFrame
    view: str

    def in_session(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a frame of a session.

        Rows of files at a URL are computed in a session of their own, and each session has its own instance of a catalog, with its own
        connections and its own cache. A catalog in SQLite is locked if two instances in one process write.
        """
        self.rows.createOrReplaceGlobalTempView(self.view)
        return spark.table(f"global_temp.{self.view}")


class TableOutput:
    """A `StreamOutput`: tables that Spark writes.

    Args:
        spark: the session.
        tables: their format and place.
        files: the directory of a topic's files, where the tables are in a catalog; None: there is none, or the tables are in the same one.

    Raises:
        BadInputError: the tables cannot be used, or Spark has no jar for them.
    """

    def __init__(self, spark: SparkSession, tables: Format, files: AnyPath | None = None) -> None:
        self._spark, self._tables, self._files = spark, tables, files
        self._held: dict[str, _Held] = {}
        self._known: dict[int, Found] = {}
        self._reported: tuple[int, int] | None = None
        self._query: str | None = None
        with self._errors():
            make_table(spark, tables, BATCHES, spark.createDataFrame([], _SCHEMA).schema)
            for row in self._rows().select("query_id", "batch_id", "at_ms", "divergences").toLocalIterator():
                self._query = row["query_id"]
                if row["batch_id"] is None:
                    self._reported = max(self._reported or (0, 0), (row["at_ms"], row["divergences"]))

    def _rows(self) -> DataFrame:
        return self._spark.table(self._tables.table(BATCHES))

    def _rows_of_batches(self) -> Iterator[Any]:
        """Yield the rows in order, a few at a time."""
        with self._errors():
            yield from self._rows().where("batch_id IS NOT NULL").orderBy("batch_id").toLocalIterator()

    @property
    def name(self) -> str:
        """The namespace or directory, and the directory of a topic's files."""
        return self._tables.name if self._files is None else f"{self._tables.name}, {ledger.name_of(self._files)}"

    def check(self, checkpoint: AnyPath) -> None:
        """Compare the query of the batches, and of the directory of a topic's files, with that of the checkpoint."""
        ours = query_of(checkpoint)
        if self._query is not None and self._query != ours:
            raise BadInputError(f"{self._tables.name}: written with another checkpoint than {checkpoint}; name that one, or empty tables")
        if self._query is None and ours is not None and output_of(checkpoint) != self.name:
            raise BadInputError(
                f"--checkpoint {checkpoint}: has been used for another output than {self._tables.name}; name an empty directory"
            )
        if self._files is not None:
            ledger.check_checkpoint(self._files, checkpoint, self.name)

    def claim(self, query_id: str) -> None:
        """Remember the query, which the rows of `batches` have, and note it beside a topic's files."""
        self._query = query_id
        if self._files is not None:
            ledger.claim(self._files, query_id)

    def landed(self) -> Iterator[tuple[int, Mapping[str, Manifest | None]]]:
        """Read the table `batches`."""
        self._known = {}
        for row in self._rows_of_batches():
            findings = msgspec.json.decode(row["findings"], type=list[Divergence])
            self._known[row["batch_id"]] = Found(row["divergences"], findings or ())
            yield row["batch_id"], _file_sets_of(row["file_sets"], msgspec.json.decode(row["judged"], type=list[Judged]))

    def batches(self) -> Collection[int]:
        """Return the batches that the table `batches` has."""
        return self._known.keys()

    def divergences_of(self, batches: Iterable[int]) -> tuple[int, list[Divergence]]:
        """Return their divergences."""
        return divergences_of(self._known, batches)

    def divergences_before(self) -> int:
        """Return the number of the newest row without a batch."""
        return self.divergences_of(self._known)[0] if self._reported is None else self._reported[1]

    def put_reported(self, divergences: int) -> None:
        """Add a row without a batch, if the number is another one."""
        if self._reported is None or self._reported[1] != divergences:
            row = (self._query, None, time.time_ns() // 1_000_000, None, None, divergences, None, None)
            with self._errors():
                self._tables.append(BATCHES, self._spark.createDataFrame([row], _SCHEMA))

    def judged_so_far(self) -> Iterator[tuple[int, Sequence[Judged]]]:
        """Read the verdicts of all batches."""
        for row in self._rows_of_batches():
            yield row["batch_id"], msgspec.json.decode(row["judged"], type=list[Judged])

    def hold(self, table: str, rows: DataFrame, batch_id: int) -> tuple[int, DataFrame]:
        """Compute the rows. They are written when their sums are those of the manifests."""
        held = rows.withColumn("batch_id", F.lit(batch_id).cast("long")).coalesce(1).persist(StorageLevel.DISK_ONLY)
        self._held[table] = _Held(held, f"sluice_{uuid.uuid4().hex}")
        return held.count(), held

    def publish(self, batch_id: int, found: Sequence[FoundManifest], written: Written, judged: Sequence[Judged]) -> None:
        """Write the rows that the tables do not have from an earlier attempt, and `batches` last."""
        assert self._query is not None
        findings = written.findings[:FINDINGS_MAX]
        texts = [msgspec.json.encode(what).decode() for what in (findings, judged)]
        numbers = (self._query, batch_id, time.time_ns() // 1_000_000)
        row = (*numbers, [one.path for one in found], [one.sha256 for one in found], written.divergences, *texts)
        with self._errors():
            for table, held in self._held.items():
                make_table(self._spark, self._tables, table, held.rows.schema)
                self._tables.append_once(self._spark, table, held.in_session(self._spark), (self._query, batch_id))
            self._tables.append_once(self._spark, BATCHES, self._spark.createDataFrame([row], _SCHEMA), (self._query, batch_id))
        self._known[batch_id] = Found(written.divergences, tuple(findings))

    def discard(self) -> None:
        """Release the computed rows."""
        for held in self._held.values():
            self._spark.catalog.dropGlobalTempView(held.view)
            held.rows.unpersist()
        self._held = {}

    def _errors(self) -> Any:
        return errors_of_tables(self._spark, self._tables)


def _file_sets_of(paths: Sequence[str], judged: Sequence[Judged]) -> dict[str, Manifest | None]:
    """Return the manifest of each path. A copy of a manifest has no verdict of its own."""
    by_name = {(one.manifest.proxy_id, one.manifest.file_set): one.manifest for one in judged}
    return {path: by_name.get(_named(path)) for path in paths}


def _named(path: str) -> tuple[str, str]:
    """Return the proxy and the file set of a manifest as its path has them."""
    parts = PurePosixPath(path).parts
    proxies = (part.removeprefix("proxy=") for part in parts if part.startswith("proxy="))
    return next(proxies, ""), parts[-1].removesuffix(".json")
