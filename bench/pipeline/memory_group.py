"""Runs a command in a memory control group: by cgroup v1 or v2 where this process may make a group, otherwise by systemd-run."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/sys/fs/cgroup")
KINDS: Final = (
    ("cgroup v1", GROUPS / "memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    ("cgroup v2", GROUPS, "memory.max", "memory.peak"),
)
"""Name, the folder of groups, and in a group the files of the limit and of the largest memory."""
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A group.

    Attributes:
        kind: what limits the memory.
        limit_bytes: the limit.
        prefix: stands before the command that runs in the group.
        peak: the file that has the largest memory of the group in bytes, with its page cache; None: there is none.
    """

    kind: str
    limit_bytes: int
    prefix: tuple[str, ...]
    peak: Path | None

    def line(self) -> str:
        """Return what is printed after the command."""
        if self.peak is None:
            return f"{self.kind} with {self.limit_bytes // MIB:,} MiB"
        had = int(self.peak.read_text()) // MIB
        return f"{self.kind} with {self.limit_bytes // MIB:,} MiB, of which the group had {had:,} MiB at most, with its page cache"


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group for one command.

    Raises:
        RuntimeError: nothing on this machine can limit the memory.
    """
    for kind, top, limit, peak in KINDS:
        group = top / f"sluice-bench-{os.getpid()}"
        if not _is_made(group, limit, limit_bytes):
            continue
        try:
            yield MemoryGroup(kind, limit_bytes, ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"), group / peak)
        finally:
            group.rmdir()
        return
    if shutil.which("systemd-run") is None:
        raise RuntimeError("no memory control group can be made here; run this as root, or where systemd-run works")
    scope = ("systemd-run", *(("--user",) if os.geteuid() else ()), "--scope", "--quiet", f"--property=MemoryMax={limit_bytes}")
    yield MemoryGroup("systemd-run", limit_bytes, scope, None)


def _is_made(group: Path, limit: str, limit_bytes: int) -> bool:
    """Make a group, unless this machine has no groups of the kind, or does not let this process make one."""
    if not (group.parent / "cgroup.procs").exists():
        return False
    try:
        group.mkdir()
    except OSError:
        return False
    try:
        (group / limit).write_text(str(limit_bytes))
    except OSError:
        group.rmdir()
        return False
    return True
