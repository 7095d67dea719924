"""The output of a stream in a folder: a directory for each batch in each table, and a marker that is written last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.files import check_directory
from pipeline.spark.written import url_of, write_rows
from pipeline.stream import judged as verdicts
from pipeline.stream import ledger
from pipeline.stream.judged import Judged
from pipeline.stream.result import Written
from pipeline.validation.divergence import Divergence


class FolderOutput:
    """A `StreamOutput`: the folder `out`, which all workers mount at the same path."""

    def __init__(self, spark: Any, out: Path) -> None:
        self._spark, self._out = spark, out

    def check(self, checkpoint: Path) -> None:
        """Check the folder and the checkpoint."""
        check_directory(self._out)
        ledger.check_checkpoint(self._out, checkpoint)

    def claim(self, query_id: str) -> None:
        """Note the query."""
        ledger.claim(self._out, query_id)

    def batch_ids(self) -> list[int]:
        """Return the batches that have a marker."""
        return ledger.batch_ids(self._out)

    def file_sets_before(self, batch_id: int) -> set[str]:
        """Return the file sets of markers."""
        return ledger.file_sets_before(self._out, batch_id)

    def divergences_of(self, batches: Iterable[int]) -> tuple[int, list[Divergence]]:
        """Return the divergences of markers."""
        return ledger.divergences_of(self._out, batches)

    def divergences_before(self) -> int:
        """Return the number that the last call reported."""
        return ledger.divergences_before(self._out)

    def put_reported(self, divergences: int) -> None:
        """Note the number."""
        ledger.put_reported(self._out, divergences)

    def judged_so_far(self) -> tuple[list[Judged], list[int]]:
        """Return the verdicts of all batches."""
        return verdicts.judged_so_far(self._out)

    def hold(self, table: str, rows: Any, batch_id: int) -> tuple[int, Any]:
        """Write the directory of a batch; without its marker it does not count."""
        place = Path(table, ledger.batch_name(batch_id))
        number = write_rows(rows.coalesce(1), self._out, place, mode="overwrite")
        return number, self._spark.read.parquet(url_of((self._out / place).resolve()))

    def publish(self, batch_id: int, file_sets: Mapping[str, str], written: Written, judged: Sequence[Judged]) -> None:
        """Write verdicts and marker."""
        verdicts.put_judged(self._out, batch_id, judged)
        ledger.put_marker(self._out, batch_id, file_sets, written)

    def discard(self) -> None:
        """Leave the directories: a repeated batch replaces them."""
