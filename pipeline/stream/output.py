"""Where a stream puts its rows and its state: what a folder of files and tables of a catalog have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from metering_format.manifest import Manifest
from pipeline.manifest import FoundManifest
from pipeline.storage.paths import AnyPath
from pipeline.stream.judged import Judged
from pipeline.stream.result import FINDINGS_MAX, Written
from pipeline.validation.divergence import Divergence


class Found(NamedTuple):
    """The divergences of a batch: their number, and the first of each group and file set, up to the number that is kept."""

    divergences: int
    findings: Sequence[Divergence]


def divergences_of(known: Mapping[int, Found], batches: Iterable[int]) -> tuple[int, list[Divergence]]:
    """Return the number of divergences of some batches, and the first of each group and file set, up to the number that is kept."""
    number, findings = 0, list[Divergence]()
    for batch_id in batches:
        number += known[batch_id].divergences
        findings += known[batch_id].findings[: FINDINGS_MAX - len(findings)]
    return number, findings


class StreamOutput(Protocol):
    """The rows of all batches, and which batches count."""

    @property
    def name(self) -> str:
        """The folder or namespace, which a checkpoint belongs to."""

    def check(self, checkpoint: AnyPath) -> None:
        """Check that the output belongs to the checkpoint.

        Raises:
            BadInputError: it belongs to another one, or cannot be used.
        """

    def claim(self, query_id: str) -> None:
        """Note the query that the batches belong to."""

    def landed(self) -> Iterator[tuple[int, Mapping[str, Manifest | None]]]:
        """Read which batches count, in order, and yield the file sets of each.

        The file sets are by the path of the manifest; None: the output does not have the manifest. Other methods know the batches that
        this one has read.
        """

    def batches(self) -> Collection[int]:
        """Return the batches that count."""

    def divergences_of(self, batches: Iterable[int]) -> tuple[int, list[Divergence]]:
        """Return the number of divergences of some batches, and the first of each group and file set, up to the number that is kept."""

    def divergences_before(self) -> int:
        """Return the number of divergences that the last call reported; without one, that of the batches."""

    def put_reported(self, divergences: int) -> None:
        """Note the number of divergences that a call reports."""

    def judged_so_far(self) -> Iterator[tuple[int, Sequence[Judged]]]:
        """Yield the verdicts of each batch, in order. Batches of earlier versions have none."""

    def hold(self, table: str, rows: Any, batch_id: int) -> tuple[int, Any]:
        """Make the rows of a table in a batch ready; return their number, and a frame with them."""

    def publish(self, batch_id: int, found: Sequence[FoundManifest], written: Written, judged: Sequence[Judged]) -> None:
        """Let a batch count, in place of what an earlier attempt at it has left.

        Args:
            batch_id: its number.
            found: its file sets.
            written: rows and divergences.
            judged: the verdicts.

        Raises:
            IncompleteError: another stream has written this batch meanwhile.
        """

    def discard(self) -> None:
        """Forget what is held, after a batch that failed or counts."""
