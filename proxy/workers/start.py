"""Creates a supervisor. A supervisor that replaces another one continues its segment of shared usage."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from proxy.app.config_parts import quota_windows
from proxy.base.clock import now_ms
from proxy.base.errors import StartError
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.shared_usage.segment import Segment, SegmentError
from proxy.telemetry import log
from proxy.workers.handover.place import Place, runtime_dir_of
from proxy.workers.handover.predecessor import Predecessor, claim_place
from proxy.workers.processes.fork_server import Spawn
from proxy.workers.supervisor import Supervisor

GROUP_ROWS: Final = 65_536
"""Maximum number of quota groups in the segment; each worker counts further groups alone."""
GENERATIONS: Final = 2
"""Number of supervisors with workers in one segment: after an upgrade the replaced supervisor's workers drain."""
DEAD_AFTER_MS: Final = 10_000
"""Time without a heartbeat after which a worker counts as dead and its number as free; heartbeats come every 100 ms."""


async def start_supervisor(
    config: Config, source: ConfigSource, workers: int, terminate: Callable[[], None], spawn: Spawn, *, takes_over: bool
) -> Supervisor:
    """Return a supervisor that is not started yet.

    Args:
        workers: number of workers.
        terminate: starts to drain this process.
        spawn: starts a process.
        takes_over: whether it is to replace a running supervisor.

    Raises:
        ConfigProblems: a part of the configuration is invalid.
        StartError: another supervisor runs in the same runtime folder and is not replaced, or the folder cannot be used.
    """
    place = place_of(config)
    predecessor = None if place is None else await claim_place(place, takes_over=takes_over)
    if predecessor is None and takes_over:
        log.warning("predecessor_gone", problem="no running Sluice was found")
    windows = quota_windows(config)
    found = None if predecessor is None else _segment_of(predecessor, config, workers)
    if found is None:
        has_fleet = config.fleet is not None
        segment = Segment.create(GENERATIONS * workers, GROUP_ROWS, windows.num_samples, windows.window_ms, has_fleet=has_fleet)
        found = segment, list(range(workers))
    return Supervisor(config, source, *found, place=place, predecessor=predecessor, terminate=terminate, spawn=spawn)


def place_of(config: Config) -> Place | None:
    """Return the runtime folder of a configuration; None: there is none, so upgrades in place are not possible.

    Raises:
        StartError: the folder that the configuration names cannot be used.
    """
    folder = runtime_dir_of(config)
    if folder is None:
        return None
    try:
        return Place(folder)
    except OSError as error:
        problem = f"runtime_dir: {folder} cannot be made: {error.strerror or error}"
        if config.runtime_dir is not None:
            raise StartError(f"{problem}; name a folder that can") from None
        log.warning("no_runtime_dir", problem=problem, remedy="name a folder in runtime_dir: without one there is no upgrade in place")
        return None


def _segment_of(predecessor: Predecessor, config: Config, workers: int) -> tuple[Segment, list[int]] | None:
    """Return the predecessor's segment and `workers` free numbers in it; None: its windows or fleet differ, or it has too few numbers."""
    windows = quota_windows(config)
    problem = "other windows of quotas, or a fleet where there was none"
    with contextlib.suppress(SegmentError):
        segment = Segment(predecessor.segment)
        numbers = free_numbers(segment, predecessor.numbers, now_ms())
        is_fleet = (segment.fleet is not None) == (config.fleet is not None)
        if is_fleet and (segment.slots, segment.slot_ms) == (windows.num_samples + 1, windows.window_ms):
            if len(numbers) >= workers:
                return segment, numbers[:workers]
            problem = f"room for {len(numbers)} workers more"
    log.warning("usage_begins_anew", problem=problem)
    os.close(predecessor.segment)
    return None


def free_numbers(segment: Segment, taken: list[int], now_ms: int) -> list[int]:
    """Return the numbers in the segment that are neither in `taken` nor used by a worker with a heartbeat in the last `DEAD_AFTER_MS`."""
    beats_ms = {number: segment.heartbeat_ms(number) for number in range(segment.workers) if number not in (*taken, segment.fleet)}
    return [number for number, beat_ms in beats_ms.items() if not beat_ms or now_ms - beat_ms >= DEAD_AFTER_MS]
