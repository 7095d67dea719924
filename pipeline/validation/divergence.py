"""One divergence with whose it is: as a line for people, with the samples that prove it, and as a plain row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pipeline.replay.findings import WHOLE_FILE, Finding
from pipeline.text import utc_time

COLUMNS: Final = ("proxy_id", "run_id", "group", "group_ref", "seq", "ts_ms", "kind", "what", "expected", "recorded")
"""Of a divergence as CSV; the samples that prove it are in JSON."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """What was found, and of which run and group.

    Attributes:
        key: proxy_id and run_id.
        group: what people call the group; None: the finding is a whole file's, or unknown.
    """

    key: tuple[str, str]
    group: str | None
    finding: Finding

    @property
    def place(self) -> str:
        """Whose decision it is, which, and when it was taken."""
        finding = self.finding
        name = f", {self.group}," if self.group else ""
        group = "file" if finding.group_ref == WHOLE_FILE else f"group {finding.group_ref}{name}"
        return f"{group} seq {finding.seq}" + (f" at {utc_time(finding.ts_ms)}" if finding.ts_ms is not None else "")

    def lines(self, *, explain: bool) -> Iterator[str]:
        """Yield a line; with `explain` the live samples that prove it, too."""
        finding = self.finding
        where = f"{self.key[0]} {self.key[1]} {self.place}"
        yield f"  {finding.kind}  {where}: {finding.what}: expected {finding.expected}, recorded {finding.recorded}"
        if explain:
            yield from (f"      {line}" for line in finding.evidence)

    def as_row(self) -> dict[str, Any]:
        """Return it as plain data."""
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
