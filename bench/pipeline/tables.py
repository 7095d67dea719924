"""`sluice meter rollup` as a command with its defaults, on a trace: its time, and the largest memory of its JVM."""

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
from pipeline.rollup.tables import read_table
from pipeline.spark.failures import HEAP

LOOK_S = 0.5


class RolledUp(NamedTuple):
    """One roll-up.

    Attributes:
        heap: the maximum heap as an option of the JVM.
        jvm_mib_max: the largest memory of the JVM.
        missing: decisions of the trace that are not in the table `decisions_hour`.
    """

    events: int
    seconds: float
    cpu_seconds: float
    heap: str
    jvm_mib_max: int
    missing: int

    def line(self) -> str:
        """Return the line to print."""
        said = f"{self.events:,} decisions in {self.seconds:.0f} s ({self.cpu_seconds:.0f} s of CPU), {self.missing:,} of them missing"
        return f"roll-up as typed: {said}; heap {self.heap}, the JVM had {self.jvm_mib_max:,} MiB at most"


def roll_up(trace: Path, out: Path, events: int) -> RolledUp:
    """Roll up a trace with the defaults.

    Raises:
        RuntimeError: the command failed; the text is its output.
    """
    command = [sys.executable, "-m", "sluice_cli", "meter", "rollup", "--in", str(trace), "--out", str(out)]
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
    heap = os.environ.get(HEAP, f"{heap_mib(memory_bytes())}m")
    return RolledUp(events, seconds, cpu, heap, most // 1_024, events - decisions)


def _resident_kib(pid: int) -> Iterator[int]:
    """Return the largest resident memory so far of each child of a process."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
            yield from (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (FileNotFoundError, ProcessLookupError):
        return  # it has just ended
