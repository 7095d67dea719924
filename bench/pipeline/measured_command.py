"""Runs a `sluice` command as a user types it; measures its time, with all child processes, and its memory."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.harness.engine import ROOT

LOOK_S = 0.2
TICKS = os.sysconf("SC_CLK_TCK")
PPID, UTIME, CSTIME = 1, 11, 14  # fields after the command, which ends with the last parenthesis


class Measured(NamedTuple):
    """What a command printed and took.

    Attributes:
        mib_max: the largest memory of the process.
    """

    output: str
    seconds: float
    cpu_seconds: float
    mib_max: int


def measured_command(arguments: list[str], output: Path) -> Measured:
    """Run a command to its end; its output goes through the file `output`."""
    command = [sys.executable, "-m", "sluice_cli", *arguments]
    began, cpu_before, most, cpu = time.monotonic(), cpu_seconds(), 0, 0.0
    with output.open("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said)
        while process.poll() is None:
            most, cpu = max(most, _resident_kib(process.pid)), max(cpu, cpu_seconds() - cpu_before)
            time.sleep(LOOK_S)
        seconds = time.monotonic() - began
        said.seek(0)
        return Measured(said.read(), seconds, cpu, most // 1_024)


def _resident_kib(pid: int) -> int:
    """Return the largest resident memory of a process so far."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has just ended
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def cpu_seconds() -> float:
    """Return user and system time of the living processes and of the ended children that they have waited for."""
    fields = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    ours = {os.getpid()}
    while more := {pid for pid, reported in fields.items() if int(reported[PPID]) in ours} - ours:
        ours |= more
    return sum(int(ticks) for pid in ours for ticks in fields[pid][UTIME : CSTIME + 1]) / TICKS
