"""CPU time of this process and all its children: Spark is a JVM and its Python workers."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PPID, UTIME, CSTIME = 1, 11, 14  # fields after the command, which ends with the last parenthesis


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
