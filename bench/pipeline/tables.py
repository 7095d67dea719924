"""`sluice meter rollup` as a command, on a trace, by either engine: its time, and the largest memory of its processes."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.harness.engine import ROOT
from bench.pipeline.measured_command import cpu_seconds
from pipeline.memory import heap_mib, memory_bytes
from pipeline.rollup.published.tables import read_table
from pipeline.spark.failures import HEAP

LOOK_S = 0.5
STARTS = "sluice: starting Spark"
NOTICE = "sluice: "


class RolledUp(NamedTuple):
    """One roll-up.

    Attributes:
        engine: spark or local.
        start_seconds: the part of `seconds` that the start of Spark took: from the notice about it to the next one.
        heap: the maximum heap as an option of the JVM; empty without one.
        mib_max: the largest memory of the JVM, or of the command itself.
        missing: decisions of the trace that are not in the table `decisions_hour`.
    """

    engine: str
    events: int
    seconds: float
    start_seconds: float
    cpu_seconds: float
    heap: str
    mib_max: int
    missing: int

    def line(self) -> str:
        """Return the line to print."""
        start = f", {self.start_seconds:.1f} s of it the start of Spark" if self.start_seconds else ""
        said = (
            f"{self.events:,} decisions in {self.seconds:.1f} s{start} ({self.cpu_seconds:.0f} s of CPU), {self.missing:,} of them missing"
        )
        memory = f"heap {self.heap}, the JVM had" if self.heap else "the process had"
        return f"roll-up as typed, --engine {self.engine}: {said}; {memory} {self.mib_max:,} MiB at most"


def roll_up(trace: Path, out: Path, events: int, engine: str, prefix: Sequence[str] = ()) -> RolledUp:
    """Roll up a trace; `prefix` stands before the command.

    Raises:
        RuntimeError: the command failed; the text is its output.
    """
    typed = ["meter", "rollup", "--in", str(trace), "--out", str(out), "--engine", engine]
    command = [*prefix, sys.executable, "-m", "sluice_cli", *typed]
    began, cpu_before, most, cpu = time.monotonic(), cpu_seconds(), 0, 0.0
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said: list[tuple[float, str]] = []
    listener = threading.Thread(target=_listen, args=(process, said))
    listener.start()
    while process.poll() is None:
        most, cpu = max(most, *_resident_kib(process.pid), 0), max(cpu, cpu_seconds() - cpu_before)
        time.sleep(LOOK_S)
    listener.join()
    seconds = said.pop()[0] - began
    if process.returncode:
        raise RuntimeError("".join(line for _, line in said))
    decisions = sum(row["decisions"] for row in read_table(out, "decisions_hour"))
    heap = os.environ.get(HEAP, f"{heap_mib(memory_bytes())}m") if engine == "spark" else ""
    return RolledUp(engine, events, seconds, _start_seconds(said), cpu, heap, most // 1_024, events - decisions)


def _listen(process: "subprocess.Popen[str]", said: list[tuple[float, str]]) -> None:
    """Collect the lines of stderr with the time of each, and the time of its end."""
    assert process.stderr is not None
    said.extend((time.monotonic(), line) for line in process.stderr)
    process.wait()
    said.append((time.monotonic(), ""))


def _start_seconds(said: list[tuple[float, str]]) -> float:
    notices = [(at, line.startswith(STARTS)) for at, line in said if line.startswith(NOTICE)]
    return next((after - at for (at, starts), (after, _) in itertools.pairwise(notices) if starts), 0.0)


def of_duckdb(trace: Path, folder: Path, tables: Path) -> tuple[float, float, str]:
    """Make the same tables by DuckDB alone; return the time of all, the time of four, and what differs from the tables of an engine."""
    command = [sys.executable, "-m", "bench.pipeline.reference", str(trace), str(folder), str(tables)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    times, _, differences = done.stdout.partition("\n")
    of_all, of_four = map(float, times.split())
    return of_all, of_four, differences.strip()


def _resident_kib(pid: int) -> Iterator[int]:
    """Return the largest resident memory so far of a process and of each child."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in (pid, *children):
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
            yield from (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (FileNotFoundError, ProcessLookupError):
        return  # it has just ended
