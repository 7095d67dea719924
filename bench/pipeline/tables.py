"""`sluice meter rollup` as a command, on a trace, by either engine: its time, and the largest memory of its processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.harness.engine import ROOT
from bench.pipeline.process_tree import cpu_seconds
from pipeline.memory import heap_mib, memory_bytes
from pipeline.rollup.published.tables import read_table
from pipeline.spark.failures import HEAP

LOOK_S = 0.5


class RolledUp(NamedTuple):
    """One roll-up.

    Attributes:
        engine: spark or local.
        heap: the maximum heap as an option of the JVM; empty without one.
        mib_max: the largest memory of the JVM, or of the command itself.
        missing: decisions of the trace that are not in the table `decisions_hour`.
    """

    engine: str
    events: int
    seconds: float
    cpu_seconds: float
    heap: str
    mib_max: int
    missing: int

    def line(self) -> str:
        """Return the line to print."""
        said = f"{self.events:,} decisions in {self.seconds:.0f} s ({self.cpu_seconds:.0f} s of CPU), {self.missing:,} of them missing"
        memory = f"heap {self.heap}, the JVM had" if self.heap else "the process had"
        return f"roll-up as typed, --engine {self.engine}: {said}; {memory} {self.mib_max:,} MiB at most"


def roll_up(trace: Path, out: Path, events: int, engine: str) -> RolledUp:
    """Roll up a trace.

    Raises:
        RuntimeError: the command failed; the text is its output.
    """
    command = [sys.executable, "-m", "sluice_cli", "meter", "rollup", "--in", str(trace), "--out", str(out), "--engine", engine]
    began, cpu_before, most, cpu = time.monotonic(), cpu_seconds(), 0, 0.0
    with (out.parent / "rollup.err").open("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said)
        while process.poll() is None:
            most, cpu = max(most, *_resident_kib(process.pid), 0), max(cpu, cpu_seconds() - cpu_before)
            time.sleep(LOOK_S)
        seconds = time.monotonic() - began
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read())
    decisions = sum(row["decisions"] for row in read_table(out, "decisions_hour"))
    heap = os.environ.get(HEAP, f"{heap_mib(memory_bytes())}m") if engine == "spark" else ""
    return RolledUp(engine, events, seconds, cpu, heap, most // 1_024, events - decisions)


def _resident_kib(pid: int) -> Iterator[int]:
    """Return the largest resident memory so far of a process and of each child."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in (pid, *children):
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
            yield from (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (FileNotFoundError, ProcessLookupError):
        return  # it has just ended
