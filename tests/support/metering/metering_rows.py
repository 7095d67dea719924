"""Metering rows from decisions that `quota` makes one by one: the slow and plain reference of the fast code."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from metering_format.tables import SAMPLES
from quota.groups.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND

RUN_ID = "20261121T120000Z-0a1b2c3d"
PROXY_ID = "sluice-1"


@dataclass
class Event:
    """One decision: `group` names the sensor, `value` is bytes, nanoseconds or connections; a negative value is an un-record."""

    group: int
    ts_ms: int
    value: int
    checked: bool = True


@dataclass
class Row:
    """A row of `samples` that grows until its sample ends or its bound changes."""

    group_ref: int
    sample_index: int
    sample_start_ms: int
    bound: float
    first_seq: int
    prior_sum: int = 0
    window_ms: int = 0
    oldest_start_ms: int = 0
    last_event_ms: int = 0
    last_seq: int = 0
    max_observed: float = 0.0
    dt_ms: list[int] = field(default_factory=list)
    val: list[int] = field(default_factory=list)
    unchecked_pos: list[int] = field(default_factory=list)
    thr_pos: list[int] = field(default_factory=list)
    thr_ms: list[int] = field(default_factory=list)
    applied_ms: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the row with the columns that follow from its lists."""
        return {
            "run_id": RUN_ID,
            "proxy_id": PROXY_ID,
            **self.__dict__,
            "n": len(self.val),
            "sum": sum(self.val),
            "throttled_n": sum(1 for ms in self.thr_ms if ms > 0),
            "violated_n": len(self.thr_ms),
            "throttle_ms_sum": sum(self.thr_ms),
            "throttle_ms_max": max([*self.thr_ms, *([0] if len(self.thr_ms) < len(self.val) else [])]),
            "applied_ms_sum": sum(ms for ms in self.applied_ms if ms > 0),
        }


class Sensor:
    """One group: a `QuotaGroup` that measures at every record decides, and integers compute the expected row."""

    def __init__(
        self, ref: int, bound: float, *, request: bool = False, num_samples: int = 11, window_ms: int = 1000, cap_ms: int | None = None
    ):
        self.ref = ref
        self.request = request
        self.group = QuotaGroup({"client-id": str(ref)}, bound, num_samples=num_samples, window_ms=window_ms, cap_ms=cap_ms, lazy=False)
        self.num_samples, self.window_ms = num_samples, window_ms
        self.samples: list[list[int]] = []  # [start, last, sum]
        self.row: Row | None = None
        self.rows: list[Row] = []
        self.measured = (0, 0)  # live sum with the last event, and its window

    def take(self, event: Event, seq: int) -> int:
        """Record one event; return the throttle in ms."""
        if not self.samples or event.ts_ms - self.samples[-1][0] >= self.window_ms:
            self.samples.append([event.ts_ms, event.ts_ms, 0])
            self.row = None
        live = [
            sample
            for sample in self.samples[-self.num_samples - 2 :]
            if event.ts_ms - sample[1] < self.num_samples * self.window_ms or sample is self.samples[-1]
        ]
        prior = sum(sample[2] for sample in live)
        oldest = min(sample[0] for sample in live)
        elapsed = event.ts_ms - oldest
        window_ms = max(elapsed + max(self.num_samples - 1 - elapsed // self.window_ms, 0) * self.window_ms, 1)
        if self.row is None or self.row.bound != self.group.bound:
            self.row = Row(self.ref, len(self.samples) - 1, self.samples[-1][0], self.group.bound, seq, prior, window_ms, oldest)
            self.rows.append(self.row)
        self.samples[-1][1] = event.ts_ms
        self.samples[-1][2] += event.value
        self.measured = (prior + event.value, window_ms)
        return self._note(event, seq, prior + event.value, window_ms)

    def _note(self, event: Event, seq: int, total: int, window_ms: int) -> int:
        row = self.row
        assert row is not None
        amount: float = event.value * PERCENT_PER_NANOSECOND if self.request else event.value
        throttle_ms = 0
        position = len(row.val)
        if event.checked:
            before = self.group.bound
            throttle_ms = self.group.record(amount, event.ts_ms)
            rate, window = self.group.rate(event.ts_ms), self.group.window_size_ms(event.ts_ms)
            assert window == window_ms
            observed = (total * PERCENT_PER_NANOSECOND if self.request else float(total)) / (window_ms / 1_000.0)
            row.max_observed = max(row.max_observed, observed) if any(at not in row.unchecked_pos for at in range(position)) else observed
            if rate > before:
                row.thr_pos.append(position)
                row.thr_ms.append(throttle_ms)
                row.applied_ms.append(throttle_ms)
        else:
            self.group.record_unchecked(amount, event.ts_ms)
            row.unchecked_pos.append(position)
        row.dt_ms.append(event.ts_ms - row.sample_start_ms)
        row.val.append(event.value)
        row.last_event_ms, row.last_seq = event.ts_ms, seq
        return throttle_ms


def rows_of(events: list[Event], sensors: dict[int, Sensor], first_seq: int = 0) -> list[dict[str, Any]]:
    """Let the sensors record the events in order; return their rows."""
    for seq, event in enumerate(events, first_seq):
        sensors[event.group].take(event, seq)
    return [row.as_dict() for sensor in sensors.values() for row in sensor.rows]


def samples_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Return the rows as a table with the declared schema."""
    return pa.Table.from_pylist(rows, schema=SAMPLES)
