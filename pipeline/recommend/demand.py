"""The demand of each group: units per second, and the rates to compare with a bound."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from pipeline.file_set import FileSet
from pipeline.recommend.buckets import requests_of
from pipeline.replay.remote import columns_of, own_events
from pipeline.replay.rows import Floats, Ints
from pipeline.whatif.buckets import read_steps
from pipeline.whatif.events import unpacked, waited_ms
from pipeline.whatif.groups import Group, Sensor
from quota.request_time import PERCENT_PER_NANOSECOND

REQUEST: Final = "Request"


@dataclass(slots=True)
class Demand(ABC):
    """The demand of one group.

    Attributes:
        span_s: a bound times this number of seconds is the amount that passes at once.
        bound: the last bound in force.
        throttled_seconds: number of seconds in which a client had to wait; the demand in them is unknown.
        parts: seconds with records, ascending, and the units of each, by file set or run.
    """

    group: Group
    span_s: float
    bound: float = 0.0
    throttled_seconds: int = 0
    parts: list[tuple[Ints, Ints]] = field(default_factory=list)

    def by_second(self) -> tuple[Ints, Floats]:
        """Return active seconds and the units in each; percent-seconds for request time."""
        seconds, at = np.unique(np.concatenate([part[0] for part in self.parts]), return_inverse=True)
        weights: Floats = np.concatenate([part[1] for part in self.parts]).astype(np.float64)
        units = np.bincount(at, weights=weights)
        scale = PERCENT_PER_NANOSECOND if self.group.quota_type == REQUEST else 1.0
        return seconds, (units * scale).astype(np.float64)

    @abstractmethod
    def rates(self) -> Floats:
        """Return the rates to compare with a bound, in units per second, one or more for each active second."""


@dataclass(slots=True)
class SensorDemand(Demand):
    """The demand of a group with a sensor; `span_s` is the shortest window that its rate is taken over: N - 1 windows."""

    def rates(self) -> Floats:
        """Return the rate over the last N - 1 windows at each active second, in units per second."""
        seconds, units = self.by_second()
        total = np.concatenate(([0.0], np.cumsum(units)))
        begin = np.searchsorted(seconds, seconds - self.span_s, side="right")
        rates: Floats = (total[1:] - total[begin]) / self.span_s
        return rates


@dataclass(slots=True)
class NeededDemand(Demand):
    """The demand of a group with a token bucket, where `span_s` is N windows, or with a schedule, where it is the burst.

    Attributes:
        needed: for each run, the lowest rates at which its requests would have passed.
        is_paced: whether it has a schedule.
    """

    needed: list[Floats] = field(default_factory=list)
    is_paced: bool = False

    def rates(self) -> Floats:
        """Return the lowest rate at which all requests of each active second would have passed; of buckets also for the end of each run."""
        return np.concatenate(self.needed)


class Part(msgspec.Struct):
    """The demand of one group in one file set, or of one token bucket or schedule in one run. Lists are arrays of 8-byte numbers.

    Attributes:
        needed, is_paced: token buckets and schedules only: as in `NeededDemand`.
    """

    group: Group
    span_s: float
    bound: float
    throttled_seconds: int
    seconds: bytes
    units: bytes
    needed: bytes | None = None
    is_paced: bool = False


def add_parts(parts: Iterable[Part], known: dict[Group, Demand]) -> None:
    """Add parts to the demand of each group, in order. The last part gives the bound.

    Demand with another pacing than that of the last part, or with another burst, does not count: rates over windows and the rates that a
    schedule needs are no alternatives to each other.
    """
    for part in parts:
        kind = SensorDemand if part.needed is None else NeededDemand
        demand = known.get(part.group)
        if type(demand) is not kind or demand.span_s != part.span_s:
            demand = known[part.group] = kind(part.group, part.span_s)
        demand.parts.append((np.frombuffer(part.seconds, np.int64), np.frombuffer(part.units, np.int64)))
        demand.bound = part.bound
        demand.throttled_seconds += part.throttled_seconds
        if part.needed is not None:
            assert isinstance(demand, NeededDemand)
            demand.is_paced = part.is_paced
            demand.needed.append(np.frombuffer(part.needed, np.float64))


def measured_in(file_set: FileSet, sensors: Mapping[int, Sensor]) -> Iterator[Part]:
    """Yield the demand of each sensor's group in one file set.

    Raises:
        BadInputError: the level was `sample`.
    """
    refs = np.array(sorted(sensors), np.int64)
    table = file_set.read("samples", columns=columns_of(file_set))
    if not len(table) or not len(refs):
        return
    rows = unpacked(table, refs, file_set)
    value = np.where(own_events(file_set, table, rows), rows.value, 0)
    second = rows.ts_ms // 1_000
    waited = waited_ms(rows) > 0
    found, begins = np.unique(rows.group_ref, return_index=True)
    ends = np.append(rows.event_at[begins[1:]], rows.events)
    for ref, begin, first, end in zip(found.tolist(), begins.tolist(), rows.event_at[begins].tolist(), ends.tolist(), strict=True):
        sensor = sensors[ref]
        span_s = max(sensor.num_samples - 1, 1) * sensor.window_ms / 1_000.0
        throttled_seconds = len(np.unique(second[first:end][waited[first:end]]))
        seconds, units = _summed(second[first:end], value[first:end])
        yield Part(sensor.group, span_s, float(rows.bound[begin]), throttled_seconds, seconds.tobytes(), units.tobytes())


def _summed(second: Ints, value: Ints) -> tuple[Ints, Ints]:
    seconds, at = np.unique(second, return_inverse=True)
    total = np.zeros(len(seconds), np.int64)
    np.add.at(total, at, value)
    return seconds, total


def buckets_in(file_sets: Sequence[FileSet], sensors: Sequence[Sensor]) -> Iterator[Part]:
    """Yield the demand on the token buckets of one run. A run begins with full buckets, and the buckets of one group are joined."""
    steps = read_steps(file_sets, [sensor.ref for sensor in sensors])
    end_ms = max(file_set.manifest.last_ts_ms for file_set in file_sets)
    refs: dict[Group, list[Sensor]] = {}
    for sensor in sensors:
        refs.setdefault(sensor.group, []).append(sensor)
    for group, own in refs.items():
        span_ms = own[0].num_samples * own[0].window_ms
        taken = steps.of([sensor.ref for sensor in own])
        asks = requests_of(taken, span_ms, end_ms)
        if asks is None:
            continue
        lists = (asks.seconds.tobytes(), asks.units.tobytes(), asks.rates.tobytes())
        yield Part(group, span_ms / 1_000.0, float(taken.bound[-1]), asks.throttled_seconds, *lists)
