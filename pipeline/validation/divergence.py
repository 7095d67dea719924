"""One divergence with its run and group: as a line for people, with the samples that prove it, and as a plain row."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pipeline.replay.findings import WHOLE_FILE, Finding, Kind
from pipeline.text import utc_time

COLUMNS: Final = ("proxy_id", "run_id", "group", "group_ref", "seq", "ts_ms", "kind", "what", "expected", "recorded")
"""Columns of a divergence in CSV; only JSON and tables include the samples that prove it."""
SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("proxy_id", "run_id", "group", "kind")),
        *((name, pa.int64()) for name in ("group_ref", "seq", "ts_ms")),
        *((name, pa.string()) for name in ("what", "expected", "recorded")),
        ("evidence", pa.list_(pa.string())),
    ]
)
"""Columns of tables of divergences."""
ORDER: Final = ("proxy_id", "run_id", "seq", "group_ref")
"""Divergences are in the order of these columns."""


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


def finding_of_row(row: Mapping[str, Any]) -> Finding:
    """Return the finding of a row, as `as_row` makes it."""
    return Finding(
        Kind(row["kind"]),
        row["group_ref"],
        row["seq"],
        row["ts_ms"],
        expected=row["expected"],
        recorded=row["recorded"],
        what=row["what"],
        evidence=tuple(row["evidence"]),
    )
