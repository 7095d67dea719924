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
PPID, UTIME, CUTIME, CSTIME = 1, 11, 13, 14  # fields after the command, which ends with the last parenthesis


class Measured(NamedTuple):
    """What a command printed and took.

    Attributes:
        cpu_seconds: with all child processes.
        mib_max: the largest memory of the process.
        own_cpu_seconds: of the process alone: on Spark the driver, without its JVM.
        jvm_mib_max: the largest memory of its JVM; 0: it has none.
    """

    output: str
    seconds: float
    cpu_seconds: float
    mib_max: int
    own_cpu_seconds: float = 0.0
    jvm_mib_max: int = 0


def measured_command(arguments: list[str], output: Path) -> Measured:
    """Run a command to its end; its output goes through the file `output`."""
    command = [sys.executable, "-m", "sluice_cli", *arguments]
    began, cpu_before, most, cpu, own, jvm = time.monotonic(), cpu_seconds(), 0, 0.0, 0.0, 0
    with output.open("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said)
        while process.poll() is None:
            most, cpu = max(most, _resident_kib(process.pid)), max(cpu, cpu_seconds() - cpu_before)
            own, jvm = max(own, _own_seconds(process.pid)), max([jvm, *map(_resident_kib, _jvms_of(process.pid))])
            time.sleep(LOOK_S)
        seconds = time.monotonic() - began
        said.seek(0)
        return Measured(said.read(), seconds, cpu, most // 1_024, own, jvm // 1_024)


def _own_seconds(pid: int) -> float:
    """Return user and system time of a process alone."""
    fields = _fields_of_processes().get(pid)
    return 0.0 if fields is None else sum(int(ticks) for ticks in fields[UTIME:CUTIME]) / TICKS


def _jvms_of(pid: int) -> list[int]:
    """Return the JVMs that a process has started."""
    return [child for child, fields in _fields_of_processes().items() if int(fields[PPID]) == pid and _name_of(child) == "java"]


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it has just ended


def _resident_kib(pid: int) -> int:
    """Return the largest resident memory of a process so far."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has just ended
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def cpu_seconds() -> float:
    """Return user and system time of the living processes and of the ended children that they have waited for."""
    fields = _fields_of_processes()
    ours = {os.getpid()}
    while more := {pid for pid, reported in fields.items() if int(reported[PPID]) in ours} - ours:
        ours |= more
    return sum(int(ticks) for pid in ours for ticks in fields[pid][UTIME : CSTIME + 1]) / TICKS


def _fields_of_processes() -> dict[int, list[str]]:
    """Return the fields of each living process, from the one after its command on."""
    fields = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return fields
