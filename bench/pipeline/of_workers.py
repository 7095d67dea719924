"""`sluice meter validate` as a command, on directories of workers that share usage: its findings, its time and its memory."""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness.engine import ROOT
from bench.metering.trace import Shape
from bench.metering.workers_trace import Made, make
from bench.pipeline.process_tree import cpu_seconds

A_SECOND = 10_000
"""Decisions of all workers."""
TAKEN_BACK = 0.01
LOOK_S = 0.2


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
    directory = folder / f"workers-{workers}-{events}"
    kept = directory.with_suffix(".json")
    if not kept.exists():
        seconds = max(60, events // A_SECOND)
        shape = Shape(events, seconds=seconds, unrecord_share=TAKEN_BACK)
        print(f"  making {directory.name}: {events:,} decisions of {workers} workers", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            made = make(Path(unfinished) / directory.name, shape, workers)
            (Path(unfinished) / directory.name).rename(directory)
        kept.write_text(json.dumps(asdict(made)))
    return _validate(directory, Made(**json.loads(kept.read_text())), workers)


def _validate(directory: Path, made: Made, workers: int) -> Judged:
    command = [sys.executable, "-m", "sluice_cli", "meter", "validate", "--in", str(directory), "--format", "json"]
    began, cpu_before, most, cpu = time.monotonic(), cpu_seconds(), 0, 0.0
    with directory.with_suffix(".out").open("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said)
        while process.poll() is None:
            most, cpu = max(most, _resident_kib(process.pid)), max(cpu, cpu_seconds() - cpu_before)
            time.sleep(LOOK_S)
        seconds = time.monotonic() - began
        said.seek(0)
        verdict: dict[str, Any] = json.load(said)
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
        seconds,
        cpu,
        most // 1_024,
    )


def _resident_kib(pid: int) -> int:
    """Return the largest resident memory of a process so far."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has just ended
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
