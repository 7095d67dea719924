"""Metering directories of several workers, of any size: groups share usage over a real segment, and the proxy's meter and writer write
a run for each worker.

Arrivals are those of `bench.metering.trace`, each at a random worker. Workers take turns in one process, on one clock, and publish every 10
ms of it, so the same seed gives the same decisions on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from bench.metering.trace import START_MS, Shape, arrivals
from metering_format.event_kinds import RECORD, UNRECORD
from metering_format.places import SHARED
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.meter.meter import Meter, Metered
from proxy.metering.writer import MeteringWriter, WriterSettings, header_of
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import SHARE_MS
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from quota.request_time import PERCENT_PER_NANOSECOND

GROUP_ROWS: Final = 65_536
"""The size that the supervisor sets."""
FLUSH_MS: Final = 250
WAITING_BYTES: Final = 16 * 2**20
"""While a writer is behind, the clock does not advance, so that a slow machine loses nothing."""
STOP_S: Final = 3_600.0
TYPES: Final = (ClientQuotaType.PRODUCE, ClientQuotaType.FETCH, ClientQuotaType.REQUEST)
NS_PER_BYTE: Final = 150
"""Nanoseconds of request time for each byte of the arrivals."""
CONNECTION, API = 1, 0


@dataclass(frozen=True, slots=True)
class Made:
    """The result.

    Attributes:
        decisions: those of all workers, un-records included.
        own_units: units that the workers recorded themselves.
        told_units: units that all workers should have recorded of each other, or found too old.
        throttled: decisions with a wait.
        dropped: decisions that a writer dropped for lack of room.
    """

    decisions: int
    own_units: int
    told_units: int
    throttled: int
    dropped: int


class Clock:
    """Monotonic ms of the machine; wall time is equal."""

    now_ms = START_MS


class Worker:
    """One worker: its groups, its meter, its writer.

    Args:
        name: name of its proxy, which is unique.
        fleet_key, settings: for a member of a fleet, the key of digests and further settings of the run.
    """

    def __init__(
        self,
        directory: Path,
        segment: Segment,
        number: int,
        clock: Clock,
        bounds: list[float],
        *,
        name: str = "bench",
        fleet_key: bytes = b"",
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._clock = clock
        self.usage = SharedUsage(segment, number, fleet_key=fleet_key)
        self.usage.on_row_refused = _row_refused
        scope = self.usage.of_scope("1")
        self._make = [scope.maker(quota_type) for quota_type in TYPES]
        self._bounds = bounds
        self.groups: list[EnforcedGroup | None] = [None] * len(bounds)
        self.used = np.zeros(len(bounds), np.int64)
        self.throttled = 0
        windows = self._windows = {"num_samples": segment.slots - 1, "window_ms": segment.slot_ms}
        shared: dict[str, Any] = {"segment": segment.identity, "worker": number, "workers": segment.workers}
        if segment.fleet is not None:
            shared["numbers"] = list(range(segment.fleet))
        run = blake2b(f"{name}-{number}".encode(), digest_size=4).hexdigest()
        header = header_of(
            f"20261121T120000Z-{run}",
            f"{name}-{number}",
            0,
            proxy_version="bench",
            level="packed",
            names="plain",
            settings={**windows, SHARED: shared, **settings},
            quota_config_sha256=None,
        )
        self.writer = MeteringWriter(WriterSettings(directory, header), lambda: clock.now_ms, _fail)
        self.meter = Meter(self.writer.hand_over, partial(_describe, windows), 0, self._all_groups)
        self.note_state()
        self.usage.on_remote = self.meter.remote
        self.writer.start()

    def note_state(self, fleet: str | None = None) -> None:
        """Meter the settings, and what is known of the fleet."""
        enabled = {"produce_enabled": True, "fetch_enabled": True, "request_enabled": True}
        state = {"from_seq": self.meter.next_seq, "ts_ms": self._clock.now_ms, "mode": "delay", "scope": "broker", "delay_max_ms": 5_000}
        self.meter.add_fact({"state": {**state, **self._windows, **enabled, "level": "packed", "fleet": fleet}})

    def _all_groups(self) -> list[EnforcedGroup]:
        return [group for group in self.groups if group is not None]

    @property
    def refs(self) -> list[int]:
        """The numbers of its groups."""
        return [ref for ref, group in enumerate(self.groups) if group is not None]

    def group(self, ref: int) -> EnforcedGroup:
        """Return a group; it is created on first use."""
        group = self.groups[ref]
        if group is None:
            tags = {"user": "", "client-id": f"client-{ref}"}
            settings: dict[str, Any] = {**self._windows, "created_ms": self._clock.now_ms}
            group = self.groups[ref] = self._make[ref % len(TYPES)](tags, self._bounds[ref], **settings)
        return group

    def decide(self, ref: int, value: int, kind: int) -> None:
        """Record a value, or un-record it."""
        group, now_ms = self.groups[ref] or self.group(ref), self._clock.now_ms
        is_time = TYPES[ref % len(TYPES)] is ClientQuotaType.REQUEST
        units = value * NS_PER_BYTE if is_time else value
        amount = units * PERCENT_PER_NANOSECOND if is_time else float(units)
        self.used[ref] += units
        if kind == UNRECORD:
            group.record_unchecked(amount, now_ms)
            self.meter.record_unchecked(group, units, now_ms, CONNECTION, API, UNRECORD)
            return
        wait_ms = group.record(amount, now_ms)
        if wait_ms > 0:
            self.throttled += 1
            self.meter.record(group, units, wait_ms, wait_ms, now_ms, CONNECTION, API)
        else:
            self.meter.passed(group, units, now_ms, CONNECTION, API)

    def stop(self) -> None:
        """Write everything."""
        self.usage.publish_all(self._clock.now_ms)
        self.meter.finish(self.writer.hand_over_last)
        if not self.writer.stop(STOP_S):
            raise RuntimeError(f"worker {self.usage.worker}: the writer did not end")


def make(directory: Path, shape: Shape, workers: int) -> Made:
    """Let workers decide, and write their decisions into an empty directory."""
    columns, bounds = arrivals_of(shape, workers)
    segment, clock = Segment.create(workers, GROUP_ROWS, shape.num_samples, shape.window_ms), Clock()
    its = [Worker(directory, segment, number, clock, bounds) for number in range(workers)]
    play(its, clock, columns)
    told = _tell_all(its, clock)
    for worker in its:
        worker.stop()
    decisions = len(columns[0]) + 2 * sum(len(worker.refs) for worker in its)
    dropped = sum(worker.writer.counts.dropped_decisions for worker in its)
    own = sum(int(worker.used.sum()) for worker in its)
    return Made(decisions, own, told, sum(worker.throttled for worker in its), dropped)


def _row_refused() -> None:
    raise RuntimeError("a group found no row, so it counted alone")


def arrivals_of(shape: Shape, processes: int) -> tuple[tuple[Any, ...], list[float]]:
    """Return the arrivals as columns (group, ms, value, kind, process), and the bounds of the groups."""
    dice = np.random.default_rng(shape.seed)
    group, ts_ms, value, kind = arrivals(shape, dice)
    used = np.bincount(group, weights=np.abs(value), minlength=shape.groups) / shape.seconds
    is_time = np.array([TYPES[ref % len(TYPES)] is ClientQuotaType.REQUEST for ref in range(shape.groups)])
    amount = np.where(is_time, NS_PER_BYTE * PERCENT_PER_NANOSECOND, 1.0)
    bounds = np.maximum(used * amount * dice.uniform(0.8, 5.0, shape.groups), 1e-3).tolist()
    process_of = (group.astype(np.int64) * 40_503 + ts_ms * 2_654_435_761 >> 16) % processes
    return (group, ts_ms, value, kind, process_of), bounds


def play(its: list[Worker], clock: Clock, columns: tuple[Any, ...], on_shared: Callable[[int], None] = lambda _now_ms: None) -> None:
    """Let the processes decide in the order of the arrivals; `on_shared` is called after each time at which all have published."""
    shared_ms = flushed_ms = clock.now_ms
    step = 1_000_000
    for first in range(0, len(columns[0]), step):
        part = [column[first : first + step].tolist() for column in columns]
        for ref, now_ms, value, kind, number in zip(*part, strict=True):
            if now_ms >= shared_ms + SHARE_MS:
                clock.now_ms = shared_ms = now_ms - now_ms % SHARE_MS
                for worker in its:
                    worker.usage.publish_all(shared_ms)
                on_shared(shared_ms)
                if now_ms >= flushed_ms + FLUSH_MS:
                    flushed_ms = shared_ms
                    _flush(its)
            clock.now_ms = now_ms
            its[number].decide(ref, value, kind)


def _flush(its: list[Worker]) -> None:
    for worker in its:
        worker.meter.flush()
        while worker.writer.waiting_bytes > WAITING_BYTES:
            time.sleep(0.01)


def _tell_all(its: list[Worker], clock: Clock) -> int:
    """Let each worker use all its groups once more, so that it takes in all usage of the others; return how much."""
    told = 0
    for turn in range(2):
        clock.now_ms += 2 * SHARE_MS
        if turn:
            total = sum(worker.used for worker in its)
            told = sum(int((total - worker.used)[worker.refs].sum()) for worker in its)
        for worker in its:
            for ref in worker.refs:
                worker.decide(ref, 1 - turn, RECORD)
            worker.meter.flush()
        for worker in its:
            worker.usage.publish_all(clock.now_ms)
    return told


def _describe(windows: dict[str, int], group: Metered) -> tuple[dict[str, Any], dict[str, Any]]:
    assert isinstance(group, EnforcedGroup)
    quota_type = TYPES[int(group.tags["client-id"].removeprefix("client-")) % len(TYPES)].value
    about = {
        "quota_type": quota_type,
        "scope": "broker",
        "node_id": 1,
        "node": "1",
        "tag_user": "",
        "tag_client_id": group.tags["client-id"],
    }
    sensor = {**windows, "cap_ms": group.cap_ms, "first_seen_ms": START_MS}
    return {**about, **sensor}, {"rule": "client-id", "source": "table", "generation": 1}


def _fail(problem: str | None) -> None:
    if problem is not None:
        raise RuntimeError(problem)
