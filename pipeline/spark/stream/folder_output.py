"""The output of a stream in a directory: a directory for each batch in each table, and a marker that is written last.

The directory is one that all workers mount at the same path, or a URL that Hadoop knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from metering_format.manifest import Manifest
from pipeline.errors import IncompleteError
from pipeline.files import check_directory
from pipeline.manifest import FoundManifest
from pipeline.spark.written import url_of, write_rows, write_rows_to_url
from pipeline.storage.paths import AnyPath, StorePath
from pipeline.stream import batch_files, ledger
from pipeline.stream import judged as verdicts
from pipeline.stream.judged import Judged
from pipeline.stream.output import Found, divergences_of
from pipeline.stream.result import FINDINGS_MAX, Written
from pipeline.validation.divergence import Divergence


class FolderOutput:
    """A `StreamOutput`: the directory `out`."""

    def __init__(self, spark: Any, out: AnyPath) -> None:
        self._spark, self._out = spark, out
        self._known: dict[int, Found] = {}
        self._merges = True  # an earlier call may have been killed, or was one of an earlier version

    @property
    def name(self) -> str:
        """The directory."""
        return ledger.name_of(self._out)

    def check(self, checkpoint: AnyPath) -> None:
        """Check the directory and the checkpoint."""
        if isinstance(self._out, Path):
            check_directory(self._out)
        ledger.check_checkpoint(self._out, checkpoint)

    def claim(self, query_id: str) -> None:
        """Note the query."""
        ledger.claim(self._out, query_id)

    def landed(self) -> Iterator[tuple[int, Mapping[str, Manifest | None]]]:
        """Read the markers."""
        self._known = {}
        for batch_id, marker in ledger.read_markers(self._out):
            self._known[batch_id] = Found(marker.divergences or 0, marker.findings or ())
            yield batch_id, marker.file_sets()

    def batches(self) -> Collection[int]:
        """Return the batches with a marker."""
        return self._known.keys()

    def divergences_of(self, batches: Iterable[int]) -> tuple[int, list[Divergence]]:
        """Return the divergences of markers."""
        return divergences_of(self._known, batches)

    def divergences_before(self) -> int:
        """Return the number that the last call reported."""
        before = ledger.reported_before(self._out)
        return self.divergences_of(self._known)[0] if before is None else before

    def put_reported(self, divergences: int) -> None:
        """Note the number."""
        ledger.put_reported(self._out, divergences)

    def judged_so_far(self) -> Iterator[tuple[int, Sequence[Judged]]]:
        """Read the verdicts of the batches with a marker."""
        return ((batch_id, judged) for batch_id, judged in verdicts.judged_so_far(self._out) if batch_id in self._known)

    def hold(self, table: str, rows: Any, batch_id: int) -> tuple[int, Any]:
        """Write the directory of a batch; without its marker it does not count."""
        frame, place = rows.coalesce(1), Path(table, ledger.batch_name(batch_id))
        if isinstance(self._out, StorePath):
            url = (self._out / place).location
            return write_rows_to_url(frame, url), self._spark.read.parquet(url)
        number = write_rows(frame, self._out, place, mode="overwrite")
        return number, self._spark.read.parquet(url_of((self._out / place).resolve()))

    def publish(self, batch_id: int, found: Sequence[FoundManifest], written: Written, judged: Sequence[Judged]) -> None:
        """Write verdicts and marker, and merge those of earlier batches when a block is complete."""
        if ledger.marker_files(self._out).has(batch_id):
            raise IncompleteError(f"--out {self._out}: another stream has written batch {batch_id} meanwhile; run one stream at a time")
        verdicts.put_judged(self._out, batch_id, judged)
        ledger.put_marker(self._out, batch_id, found, written)
        self._known[batch_id] = Found(written.divergences, tuple(written.findings[:FINDINGS_MAX]))
        if self._merges or (batch_id + 1) % batch_files.WIDTHS[0] == 0:
            has_more = [files.merge(batch_id + 1) for files in (ledger.marker_files(self._out), verdicts.judged_files(self._out))]
            self._merges = any(has_more)

    def discard(self) -> None:
        """Leave the directories: a repeated batch replaces them."""
