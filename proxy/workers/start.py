"""Makes a supervisor: alone, or in the place of another one, whose segment of shared usage it goes on with."""

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
from proxy.workers.handover.predecessor import Predecessor, meet
from proxy.workers.supervisor import Supervisor

GROUP_ROWS: Final = 65_536
"""So many quota groups are shared by all workers; those beyond are counted by each worker alone."""
GENERATIONS: Final = 2
"""Workers of two supervisors use one segment while the older ones are drained."""
GONE_MS: Final = 10_000
"""A worker that did not say for so long that it is alive, which it does every 100 ms, is dead: its number is free."""


async def start_supervisor(
    config: Config, source: ConfigSource, workers: int, terminate: Callable[[], None], *, takes_over: bool
) -> Supervisor:
    """Return a supervisor that is about to start.

    Args:
        terminate: has this process drained.
        takes_over: a supervisor that runs is to be replaced.

    Raises:
        ConfigProblems: a part of the configuration is not right.
        StartError: another supervisor runs at the same place.
    """
    place = place_of(config)
    predecessor = None if place is None else await meet(place, takes_over=takes_over)
    if predecessor is None and takes_over:
        log.warning("predecessor_gone", problem="nobody is there to be replaced")
    windows = quota_windows(config)
    found = None if predecessor is None else _segment_of(predecessor, workers, windows.num_samples, windows.window_ms)
    if found is None:
        segment = Segment.create(GENERATIONS * workers, GROUP_ROWS, windows.num_samples, windows.window_ms)
        found = segment, list(range(workers))
    return Supervisor(config, source, *found, place=place, predecessor=predecessor, terminate=terminate)


def place_of(config: Config) -> Place | None:
    """Return where supervisors meet; None: nowhere, so that no other process can take the place of this one.

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


def _segment_of(predecessor: Predecessor, workers: int, num_samples: int, window_ms: int) -> tuple[Segment, list[int]] | None:
    """Return the segment of the workers that go on, and numbers that none of them has; None: it does not fit."""
    problem = "other windows of quotas"
    with contextlib.suppress(SegmentError):
        segment = Segment(predecessor.segment)
        numbers = free_numbers(segment, predecessor.numbers, now_ms())
        if (segment.slots, segment.slot_ms) == (num_samples + 1, window_ms):
            if len(numbers) >= workers:
                return segment, numbers[:workers]
            problem = f"it has room for {len(numbers)} workers more"
    log.warning("usage_begins_anew", problem=problem)
    os.close(predecessor.segment)
    return None


def free_numbers(segment: Segment, taken: list[int], now_ms: int) -> list[int]:
    """Return the numbers that no living worker has."""
    beats_ms = {number: segment.heartbeat_ms(number) for number in range(segment.workers) if number not in taken}
    return [number for number, beat_ms in beats_ms.items() if not beat_ms or now_ms - beat_ms >= GONE_MS]
