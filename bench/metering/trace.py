"""Metering directories of any size: `quota.groups.group` decides, and the proxy's own writer writes the files.

Arrivals follow a Zipf distribution and have bursts: the first group has the share `hottest` of all decisions, 30 % are in bursts of 4 s,
sizes are log-normal, and a group's bound is 0.8 to 5 times its own mean rate, so that about a quarter of all decisions have a wait. Waits
do not change arrivals.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from metering_format.event_kinds import CHARGED, OWED, RECORD, REFUSED, SETTLED, UNRECORD
from metering_format.places import PACED, SEGMENTS, file_set_name
from proxy.base.files import make_directory
from proxy.enforcement.groups.enforced_groups import EnforcedGroup, EnforcedMutationGroup
from proxy.meter.batch import BATCH_WORDS, Batch
from proxy.meter.record import RECORDED
from proxy.metering.conversion.convert import convert
from proxy.metering.conversion.usage_table import COLUMNS
from proxy.metering.raw import DTYPE
from proxy.metering.segment import SegmentWriter
from proxy.metering.writer import header_of
from quota.paced_schedule import BURST_MS as PACED_BURST_MS
from quota.paced_schedule import MS_NS, PacedSchedule, cost_ns, ms_after
from quota.request_time import PERCENT_PER_NANOSECOND

RUN_ID = "20261121T120000Z-0000beac"
PROXY_ID = "bench"
START_MS = 1_795_262_400_000  # 2026-11-21 12:00 UTC: a full hour, so that no file set is divided
BURST_SHARE, BURST_MS = 0.3, 4_000
MUTATION = "ControllerMutation"
MEAN_VALUE = {"Produce": 20_000, "Fetch": 60_000, "Request": 3_000_000, "Connection": 1, MUTATION: 8}
OWED_SHARE = 0.1  # share of controller mutations with old protocol versions


@dataclass(frozen=True)
class Shape:
    """The parameters of a trace.

    Attributes:
        zipf: exponent; 1.1 gives the hottest of 1,000 groups 18 %, 2.0 gives it 61 %.
        unrecord_share: the share of decisions that are followed by an un-record of the same value, as for a throttled fetch.
        lazy: whether the deciding groups use the short path, as in the proxy.
        connections: number of each group, in usage rows; without them rates over minutes are not judged where windows decide.
        paced: whether schedules decide; a bound is then at least 1.05 times the mean rate of its group, since waits do not change arrivals.
    """

    events: int
    groups: int = 1_000
    zipf: float = 1.1
    seconds: int = 3_600
    file_set_seconds: int = 300
    quota_type: str = "Produce"
    num_samples: int = 11
    window_ms: int = 1_000
    unrecord_share: float = 0.0
    lazy: bool = True
    paced: bool = False
    connections: int = 0
    seed: int = 1


@dataclass(frozen=True)
class Decided:
    """Raw decisions in arrays; the `bound` of each group; for token buckets the balance and time that each step found, and the balance
    it left.
    """

    group: Any
    ts_ms: Any
    value: Any
    kind: Any
    throttle_ms: Any
    bound: Any
    before: array[float] = field(default_factory=lambda: array("d"))
    since_ms: array[int] = field(default_factory=lambda: array("q"))
    after: array[float] = field(default_factory=lambda: array("d"))


def decide(shape: Shape) -> Decided:
    """Draw arrivals and let one `EnforcedGroup` per group decide them in order."""
    dice = np.random.default_rng(shape.seed)
    group, ts_ms, value, kind = arrivals(shape, dice)
    seconds = np.bincount(group, weights=np.abs(value), minlength=shape.groups) / shape.seconds
    amount = PERCENT_PER_NANOSECOND if shape.quota_type == "Request" else 1.0
    bound = np.maximum(seconds * amount * dice.uniform(1.05 if shape.paced else 0.8, 5.0, shape.groups), 1e-3)
    if shape.paced:
        return _admit(Decided(group, ts_ms, value, kind, np.zeros(len(group), np.int32), bound))
    if shape.quota_type == MUTATION:
        return _decide_buckets(shape, Decided(group, ts_ms, value, kind, np.zeros(len(group), np.int32), bound), dice)
    cap_ms = shape.window_ms if shape.quota_type in ("Request", "Connection") else None
    sensors = [
        EnforcedGroup({}, float(limit), num_samples=shape.num_samples, window_ms=shape.window_ms, cap_ms=cap_ms, lazy=shape.lazy)
        for limit in bound
    ]
    is_request = shape.quota_type == "Request"
    throttle_ms = np.zeros(len(group), np.int32)
    for first in range(0, len(group), 1_000_000):
        part = slice(first, first + 1_000_000)
        amounts = (value[part] * PERCENT_PER_NANOSECOND if is_request else value[part]).tolist()
        throttle_ms[part] = list(_loop(sensors, group[part].tolist(), amounts, ts_ms[part].tolist(), kind[part].tolist()))
    return Decided(group, ts_ms, value, kind, throttle_ms, bound)


def _admit(asked: Decided) -> Decided:
    """Let one schedule per group admit requests in the order in which they come; return them in the order in which they pass."""
    schedules = [PacedSchedule(PACED_BURST_MS * MS_NS) for _ in asked.bound]
    bounds, waits_ms = asked.bound.tolist(), array("q")
    for ref, now_ms, size in zip(asked.group.tolist(), asked.ts_ms.tolist(), asked.value.tolist(), strict=True):
        schedule = schedules[ref]
        wait_ms = ms_after(schedule.wait_ns(now_ms * MS_NS))
        schedule.charge(cost_ns(size, bounds[ref]), (now_ms + wait_ms) * MS_NS)
        waits_ms.append(wait_ms)
    waited = np.frombuffer(waits_ms, np.int64)
    order = np.argsort(asked.ts_ms + waited, kind="stable")
    columns = (asked.group, asked.ts_ms + waited, asked.value, asked.kind, waited.astype(np.int32))
    return Decided(*(column[order] for column in columns), asked.bound)


def _loop(sensors: list[EnforcedGroup], groups: list[int], amounts: list[float], times: list[int], kinds: list[int]) -> Iterator[int]:
    for ref, amount, now_ms, kind in zip(groups, amounts, times, kinds, strict=True):
        if kind == RECORD:
            yield sensors[ref].record(amount, now_ms)
        else:
            sensors[ref].record_unchecked(amount, now_ms)
            yield 0


def _decide_buckets(shape: Shape, asked: Decided, dice: Any) -> Decided:
    """Let one token bucket per group decide; a refund is half of a charge, the part that was not created."""
    full_ms = START_MS - 2 * shape.num_samples * shape.window_ms
    sensor = {"num_samples": shape.num_samples, "window_ms": shape.window_ms, "last_update_ms": full_ms}
    groups = [EnforcedMutationGroup({}, float(bound), **sensor) for bound in asked.bound]
    is_owed = (dice.random(len(asked.group)) < OWED_SHARE).tolist()
    reported = zip(asked.group.tolist(), asked.ts_ms.tolist(), asked.value.tolist(), asked.kind.tolist(), is_owed, strict=True)
    for at, (ref, now_ms, permits, kind, owed) in enumerate(reported):
        group = groups[ref]
        before, since_ms = group.balance
        if kind == UNRECORD:
            group.record_unchecked(permits, now_ms)
            asked.kind[at] = SETTLED
        elif owed:
            asked.kind[at], asked.throttle_ms[at] = OWED, group.record_permissive(permits, now_ms)
        else:
            asked.kind[at] = REFUSED if group.is_exhausted(now_ms) else CHARGED
            asked.throttle_ms[at] = group.record(permits, now_ms)
        asked.before.append(before)
        asked.since_ms.append(since_ms)
        asked.after.append(group.tokens(now_ms))
    return asked


def arrivals(shape: Shape, dice: Any) -> tuple[Any, Any, Any, Any]:
    """Draw decisions in order of time: group, wall ms, value and kind of each."""
    weights = 1.0 / np.arange(1, shape.groups + 1) ** shape.zipf
    events = shape.events - int(shape.events * shape.unrecord_share)
    group = dice.choice(shape.groups, events, p=weights / weights.sum()).astype(np.int32)
    at = dice.integers(0, shape.seconds * 1_000, events)
    bursts = dice.random(events) < BURST_SHARE
    starts = dice.integers(0, shape.seconds * 1_000 - BURST_MS, (shape.groups, 8))
    at[bursts] = starts[group[bursts], dice.integers(0, 8, int(bursts.sum()))] + dice.integers(0, BURST_MS, int(bursts.sum()))
    value = np.ones(events, np.int64)
    if shape.quota_type != "Connection":
        value = np.maximum(dice.lognormal(np.log(MEAN_VALUE[shape.quota_type]) - 0.5, 1.0, events), 1).astype(np.int64)
    kind = np.full(events, RECORD, np.int32)
    taken_back = dice.choice(events, shape.events - events, replace=False)
    order = np.argsort(np.concatenate((at, at[taken_back])), kind="stable")
    return (
        np.concatenate((group, group[taken_back]))[order],
        START_MS + np.concatenate((at, at[taken_back]))[order],
        np.concatenate((value, -value[taken_back]))[order],
        np.concatenate((kind, np.full(len(taken_back), UNRECORD, np.int32)))[order],
    )


def write(directory: Path, shape: Shape, decided: Decided) -> Path:
    """Write the run into an empty directory, a file set for each `file_set_seconds`; return the directory."""
    ends = np.searchsorted(decided.ts_ms, START_MS + 1_000 * np.arange(shape.file_set_seconds, shape.seconds + 1, shape.file_set_seconds))
    first, previous = 0, None
    make_directory(directory / SEGMENTS)
    for end in sorted({int(end) for end in ends if end} | {len(decided.group)}):
        if end > first:
            previous = _write_file_set(directory, shape, decided, slice(first, end), previous, final=end == len(decided.group))
            first = end
    return directory


def _write_file_set(directory: Path, shape: Shape, decided: Decided, part: slice, previous: str | None, *, final: bool) -> str:
    file_set = file_set_name(RUN_ID, part.start)
    settings = {"num_samples": shape.num_samples, "window_ms": shape.window_ms}
    of_run = settings | ({PACED: PACED_BURST_MS} if shape.paced else {})
    reported = {"proxy_version": "bench", "level": "packed", "names": "plain", "settings": of_run, "quota_config_sha256": None}
    header = header_of(RUN_ID, PROXY_ID, 0, **reported)
    opened_ts_ms = int(decided.ts_ms[part.start])
    run = {**header, "first_seq": part.start, "part": 0, "opened_ts_ms": opened_ts_ms, "previous": previous}
    enabled = {"produce_enabled": True, "fetch_enabled": True, "request_enabled": True}
    state = {"from_seq": part.start, "ts_ms": opened_ts_ms, "mode": "delay", "scope": "broker", "delay_max_ms": 5_000}
    facts: list[dict[str, Any]] = [{"run": run}, {"state": {**state, **settings, **enabled, "level": "packed"}}]
    for ref in np.unique(decided.group[part]).tolist():
        facts += _group_facts(shape, ref, float(decided.bound[ref]))
        facts += _client_facts(ref) if shape.connections else []
    if shape.connections:
        facts.append(_usage_fact(shape, [fact["client"]["client_ref"] for fact in facts if "client" in fact], opened_ts_ms))
    writer = SegmentWriter(directory / SEGMENTS / file_set, facts)
    for first in range(part.start, part.stop, BATCH_WORDS):
        own = slice(first, min(first + BATCH_WORDS, part.stop))
        records = _raw(decided, own)
        seqs = range(own.start, own.stop if decided.before else own.start)
        steps = list(zip(seqs, decided.before[own], decided.since_ms[own], decided.after[own], strict=True))
        words = np.full(len(records), RECORDED, np.int64)
        facts = [{"buckets": steps}] if steps else []
        writer.write(facts, Batch(first, len(records), words.tobytes(), records.tobytes(), facts))
    writer.close()
    convert(directory, file_set, {"final": final, "dropped_usage_rows": 0})
    return file_set


def _raw(decided: Decided, part: slice) -> Any:
    records = np.zeros(part.stop - part.start, DTYPE)
    records["ts_ms"], records["value"], records["group_ref"] = decided.ts_ms[part], decided.value[part], decided.group[part]
    records["throttle_ms"] = records["applied_ms"] = decided.throttle_ms[part]
    records["kind"] = decided.kind[part]
    return records


def _group_facts(shape: Shape, ref: int, bound: float) -> list[dict[str, Any]]:
    cap_ms = shape.window_ms if shape.quota_type in ("Request", "Connection") else None
    sensor = {"num_samples": shape.num_samples, "window_ms": shape.window_ms, "cap_ms": cap_ms, "first_seen_ms": START_MS}
    about = {"quota_type": shape.quota_type, "scope": "broker", "node_id": 1, "node": "1", "tag_client_id": f"client-{ref}"}
    rule = {"previous": None, "rule": "client-id", "source": "table", "generation": 1, "is_paced": shape.paced}
    return [{"group": {"group_ref": ref, **about, **sensor}}, {"bound": {"group_ref": ref, "from_seq": 0, "bound": bound, **rule}}]


def _client_facts(ref: int) -> list[dict[str, Any]]:
    client = {"principal_type": "User", "principal": "bench", "client_id": f"client-{ref}", "name_form": "plain"}
    return [{"client": {"client_ref": ref, **client}}]


def _usage_fact(shape: Shape, refs: list[int], second_ms: int) -> dict[str, Any]:
    """Return a second in which each client had connections and no requests."""
    place = {"node_id": 1, "node": "1", "listener": "bench", "api_class": "produce"}
    counts = dict.fromkeys(COLUMNS, 0) | place | {"connections_open": shape.connections}
    rows = [tuple((counts | {"client_ref": ref})[name] for name in COLUMNS) for ref in refs]
    return {"usage": {"second_ms": second_ms // 1_000 * 1_000, "rows": rows}}


def totals(directory: Path) -> dict[str, int]:
    """Return decisions and waits of the manifests."""
    found = {"decisions": 0, "throttled": 0}
    for path in (directory / "manifests").rglob("*.json"):
        for count in json.loads(path.read_text())["counts"].values():
            for name in found:
                found[name] += count[name]
    return found
