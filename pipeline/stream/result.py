"""The result of a stream by batch and in total, as text and as plain data."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pipeline.completeness import Completeness
from pipeline.text import counted
from pipeline.validation.divergence import Divergence

FINDINGS_MAX: Final = 50


@dataclass(slots=True)
class Written:
    """The rows that a batch added to the tables.

    Attributes:
        unjudged: number of decisions that are too close after a loss, or after an upgrade, to be judged.
        findings: the first divergence of each group of each file set.
    """

    file_sets: int
    divergences: int = 0
    unjudged: int = 0
    findings: list[Divergence] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class StreamResult:
    """The result of one call of the command.

    Attributes:
        divergences: number over all file sets in the output, including earlier calls.
        new_divergences: how many more they are than in the call before.
        unjudged: number of decisions that cannot be judged: with `once` of all file sets in the output, otherwise of this call.
        findings: the first divergence of each group (in a stream without `once` of each group and file set), up to the number that is kept.
        whole: number of file sets that existed when the last batch began, all of them in the output; None when the stream was stopped.
        lost: losses among all file sets in the output, including earlier calls.
    """

    batches: int = 0
    file_sets: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    divergences: int = 0
    new_divergences: int = 0
    unjudged: int = 0
    findings: list[Divergence] = field(default_factory=list)
    whole: int | None = None
    lost: Completeness = field(default_factory=Completeness)

    def add(self, written: Written) -> None:
        """Add the rows of a batch."""
        self.batches += 1
        self.file_sets += written.file_sets
        self.unjudged += written.unjudged
        for table, number in written.rows.items():
            self.rows[table] = self.rows.get(table, 0) + number

    @property
    def is_whole(self) -> bool:
        """Whether no loss is known."""
        return not (self.lost.incomplete or self.lost.dropped or self.unjudged)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "verdict": "violations" if self.divergences else "exact",
            "batches": self.batches,
            "file_sets": self.file_sets,
            "file_sets_in_all": self.whole,
            "rows": self.rows,
            "coverage_percent": self.lost.percent,
            "dropped_decisions": self.lost.dropped,
            "unjudged_after_losses": self.unjudged,
            "incomplete": self.lost.incomplete,
            "removed": self.lost.removed,
            "divergences": self.divergences,
            "new_divergences": self.new_divergences,
            "first_divergences": [divergence.as_row() for divergence in self.findings],
        }

    def lines(self, *, explain: bool) -> Iterator[str]:
        """Yield the result as text; `explain` adds the samples that prove each divergence."""
        yield f"landed      {counted(self.file_sets, 'file set')} in {counted(self.batches, 'batch')}"
        for table, rows in sorted(self.rows.items()):
            yield f"            {rows:>12,} rows of {table}"
        if self.whole is not None:
            yield f"complete    all {self.whole:,} file sets that exist; none was left out as late"
        dropped = f", {counted(self.lost.dropped, 'decision')} not written or in no file set" if self.lost.dropped else ""
        yield f"coverage    {self.lost.percent:.4g} %{dropped}"
        if self.unjudged:
            yield f"unjudged    {counted(self.unjudged, 'decision')}, which follow missing decisions or an upgrade too closely"
        yield from (f"removed     {line}" for line in self.lost.removed)
        yield from (f"incomplete  {line}" for line in self.lost.incomplete)
        if not self.divergences:
            yield "verdict     exact"
            return
        earlier = self.divergences - self.new_divergences
        known = f", {earlier:,} of them in earlier calls" if earlier else ""
        yield f"verdict     {self.divergences:,} divergences{known}; the first of each group and file set:"
        for divergence in self.findings:
            yield from divergence.lines(explain=explain)
