"""What an engine does for a roll-up: it finds file sets, reads and checks rows, and writes tables to the staging directory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pipeline.rollup.coverage import Coverage
from pipeline.rollup.inputs import Hour, Input
from pipeline.rollup.plan import Plan

ReportProgress = Callable[[str], None]


class RollupRows(Protocol):
    """The rows of some file sets, whose sums equal those in the manifests."""

    @property
    def usage_problems(self) -> Mapping[str, int]:
        """Number of quarantined usage rows, by file set."""

    @property
    def decision_problems(self) -> int:
        """Number of quarantined decision rows."""

    @property
    def decisions_aside(self) -> Mapping[str, int]:
        """Number of decisions in quarantined rows, by file set."""

    def put_open(self, plan: Plan, coverage: Mapping[Hour, Coverage], report: ReportProgress) -> dict[str, int]:
        """Write the tables of the plan's hours and days to the staging directory; return the number of rows of each."""

    def put_late(self, late: Sequence[Input], batch: str, days: Mapping[str, Coverage]) -> dict[str, int]:
        """Write the adjustments of closed days to the staging directory; return the number of rows of each table."""

    def release(self) -> None:
        """Release memory."""


class RollupEngine(Protocol):
    """Reads the metering directory of the settings with which it was made."""

    def find(self) -> tuple[Sequence[Input], Mapping[tuple[str, str], int]]:
        """Return all file sets, and the last decision that retention removed, by run.

        Raises:
            BadInputError, IncompleteError: the directory cannot be used.
        """

    def read(self, inputs: Sequence[Input]) -> RollupRows:
        """Read and check these file sets.

        Raises:
            BadInputError: a file is invalid.
            IncompleteError: the content of a file set differs from its manifest.
        """
