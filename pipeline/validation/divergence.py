"""One divergence with its run and group: as a line for people, with the samples that prove it, and as a plain row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pipeline.replay.findings import WHOLE_FILE, Finding
from pipeline.text import utc_time

COLUMNS: Final = ("proxy_id", "run_id", "group", "group_ref", "seq", "ts_ms", "kind", "what", "expected", "recorded")
"""Columns of a divergence in CSV; only JSON includes the samples that prove it."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A finding with its run and group.

    Attributes:
        key: proxy_id and run_id.
        group: display name of the group; None when the finding concerns a whole file, or the name is unknown.
    """

    key: tuple[str, str]
    group: str | None
    finding: Finding

    @property
    def place(self) -> str:
        """The run, the group, the sequence number and the time of the decision."""
        finding = self.finding
        name = f", {self.group}," if self.group else ""
        group = "file" if finding.group_ref == WHOLE_FILE else f"group {finding.group_ref}{name}"
        return f"{group} seq {finding.seq}" + (f" at {utc_time(finding.ts_ms)}" if finding.ts_ms is not None else "")

    def lines(self, *, explain: bool) -> Iterator[str]:
        """Yield one line; `explain` adds the live samples that prove the divergence."""
        finding = self.finding
        where = f"{self.key[0]} {self.key[1]} {self.place}"
        yield f"  {finding.kind}  {where}: {finding.what}: expected {finding.expected}, recorded {finding.recorded}"
        if explain:
            yield from (f"      {line}" for line in finding.evidence)

    def as_row(self) -> dict[str, Any]:
        """Return the divergence as plain data."""
        finding = self.finding
        return {
            "proxy_id": self.key[0],
            "run_id": self.key[1],
            "group": self.group,
            "kind": finding.kind.value,
            "group_ref": finding.group_ref,
            "seq": finding.seq,
            "ts_ms": finding.ts_ms,
            "what": finding.what,
            "expected": finding.expected,
            "recorded": finding.recorded,
            "evidence": list(finding.evidence),
        }
