"""The number of workers for `auto`: one for each core available to this process."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
CGROUP_V1_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cores() -> int:
    """Return the number of available cores: the smaller of CPU affinity and the cgroup's CPU quota, rounded up; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota_cores(CGROUP_V2, CGROUP_V1_QUOTA, CGROUP_V1_PERIOD)
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def _quota_cores(v2: Path, v1_quota: Path, v1_period: Path) -> float | None:
    """Return the CPU quota of a cgroup in cores; None: the cgroup has no quota."""
    try:
        quota, period = v2.read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = v1_quota.read_text().strip(), v1_period.read_text().strip()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        return None  # "max": no quota
