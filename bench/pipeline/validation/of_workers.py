"""`sluice meter validate` as a command, on directories of workers that share usage: its findings, its time and its memory."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from bench.metering.workers_trace import Made, make
from bench.pipeline.measured_command import measured_command
from bench.pipeline.validation.made_directory import known_of, made_directory


class Judged(NamedTuple):
    """One verdict on a directory of workers.

    Attributes:
        missing: decisions that were not validated.
        differences: the number of divergences.
        lost_units: usage of a worker that another one neither recorded nor noted as too old.
        mib_max: the largest memory of the process.
    """

    workers: int
    decisions: int
    missing: int
    differences: int
    remote_records: int
    lost_units: int
    incomplete: int
    throttled: int
    seconds: float
    cpu_seconds: float
    mib_max: int

    @property
    def is_wrong(self) -> bool:
        """Whether anything was found, lost, or left out."""
        return any((self.missing, self.differences, self.lost_units, self.incomplete))

    def lines(self) -> list[str]:
        """Return the lines to print."""
        rate = self.decisions / self.seconds
        return [
            f"validate as typed, {self.workers} workers that share usage: {self.decisions:,} decisions ({self.throttled:,} with a wait) "
            f"and {self.remote_records:,} records of other workers' usage in {self.seconds:.1f} s ({self.cpu_seconds:.1f} s of CPU): "
            f"{rate:,.0f} decisions/s; {self.mib_max:,} MiB at most",
            f"differences {self.differences:,}, decisions not judged {self.missing:,}, units lost between workers {self.lost_units:,}",
        ]


def judged(folder: Path, events: int, workers: int) -> Judged:
    """Make a directory of this many decisions, unless it exists, and validate it.

    Raises:
        RuntimeError: the command failed; the text is its output.
    """
    directory = made_directory(folder, events, workers, "workers", make)
    return _validate(directory, Made(**known_of(directory)), workers)


def _validate(directory: Path, made: Made, workers: int) -> Judged:
    said = measured_command(["meter", "validate", "--in", str(directory), "--format", "json"], directory.with_suffix(".out"))
    verdict: dict[str, Any] = json.loads(said.output)
    shared = verdict["shared"]
    return Judged(
        workers,
        made.decisions,
        made.decisions + shared["remote_records"] - verdict["decisions"],
        verdict["violations"],
        shared["remote_records"],
        made.told_units - shared["remote_units"] - shared["skipped_units"],
        len(verdict["incomplete"]),
        made.throttled,
        said.seconds,
        said.cpu_seconds,
        said.mib_max,
    )
