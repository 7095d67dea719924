"""Runs with paced groups: the proxy's own packing writes the rows, from requests that a schedule admits one by one."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metering_format.event_kinds import RECORD, UNCHECKED
from metering_format.places import PACED
from proxy.metering.conversion.bounds import bounds_of
from proxy.metering.conversion.packing import pack
from proxy.metering.conversion.runs import Runs
from proxy.metering.conversion.samples import STATE, Sensors
from quota.paced_schedule import MS_NS, PacedSchedule, cost_ns, ms_after
from tests.support.metering.metering_directory import counts_of_types, write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID
from tests.support.metering.metering_scene import START_MS

BURST_MS = 1_000
Rows = list[dict[str, Any]]
Change = Callable[[Rows], None]


class Request(NamedTuple):
    """A request that passed.

    Attributes:
        ts_ms: when it passed, in wall-clock ms.
        waited_ms: how long it waited before that.
    """

    ts_ms: int
    size: int
    checked: bool = True
    waited_ms: int = 0
    group: int = 0


def admitted(came: Iterable[tuple[int, int]], bound: float, *, group: int = 0) -> list[Request]:
    """Return requests that come at (ms since the start, bytes), and pass in this order, each as soon as the schedule lets it."""
    schedule, passed = PacedSchedule(BURST_MS * MS_NS), []
    for at_ms, size in came:
        now_ms = START_MS + at_ms
        wait_ms = ms_after(schedule.wait_ns(now_ms * MS_NS))
        schedule.charge(cost_ns(size, bound), (now_ms + wait_ms) * MS_NS)
        passed.append(Request(now_ms + wait_ms, size, waited_ms=wait_ms, group=group))
    return passed


def write_paced(
    directory: Path,
    file_sets: Sequence[Sequence[Request]],
    bounds: Mapping[int, float],
    change: Change = lambda _rows: None,
    *,
    paced: Collection[int] | None = None,
    tables: Mapping[str, Rows] | None = None,
) -> Path:
    """Write a run of groups of client-ids client-0, client-1 and so on; return the directory.

    Args:
        file_sets: the requests of each file set, in order of time.
        bounds: bound of each group, in bytes per second.
        change: changes the rows of samples of each file set before they are written.
        paced: the groups with a schedule; None: all.
        tables: rows of further tables, for the first file set.
    """
    paced = bounds if paced is None else paced
    size = max(bounds) + 1
    sensors = Sensors(np.full(size, 11), np.full(size, 1_000), np.zeros(size, np.bool_))
    noted = bounds_of([{"group_ref": ref, "from_seq": 0, "bound": bound, "is_paced": ref in paced} for ref, bound in bounds.items()])
    state, seq, previous = STATE.empty_table(), 0, None
    for number, requests in enumerate(file_sets):
        packed = pack(_runs(requests, seq), sensors, noted, state, (RUN_ID, PROXY_ID), lists=True)
        state, rows = packed.state, packed.samples.to_pylist()
        counts = counts_of_types(rows, dict.fromkeys(bounds, "Produce"))
        change(rows)
        ends = requests[0].ts_ms, requests[-1].ts_ms
        fields = {"final": number == len(file_sets) - 1, "previous": previous, "settings": {PACED: BURST_MS}}
        more = dict(tables or {}) if number == 0 else {}
        last_seq = seq + len(requests) - 1
        written = _tables(rows, bounds, seq, ends[0]) | more
        previous = write_file_set(directory, written, seq, last_seq, *ends, counts, **fields)
        seq += len(requests)
    return directory


def _runs(requests: Sequence[Request], seq: int) -> Runs:
    count = len(requests)
    column = {name: np.array([getattr(request, name) for request in requests]) for name in Request._fields}
    kinds = np.where(column["checked"], RECORD, UNCHECKED).astype(np.int32)
    waits = column["waited_ms"].astype(np.int32)
    refs = column["group"].astype(np.int32)
    return Runs(refs, np.arange(seq, seq + count), np.ones(count, np.int64), column["ts_ms"], column["size"], waits, waits, kinds)


def _tables(rows: Rows, bounds: Mapping[int, float], from_seq: int, ts_ms: int) -> dict[str, Rows]:
    run = {"run_id": RUN_ID, "proxy_id": PROXY_ID}
    about = {"quota_type": "Produce", "scope": "broker", "node_id": 1, "node": "1", "first_seen_ms": START_MS}
    sensor = {"num_samples": 11, "window_ms": 1_000}
    groups = [{**run, **about, **sensor, "group_ref": ref, "tag_client_id": f"client-{ref}"} for ref in bounds]
    rule = {"run_id": RUN_ID, "from_seq": 0, "rule": "client-id", "source": "file", "generation": 1}
    noted = [{**rule, "group_ref": ref, "bound": bound} for ref, bound in bounds.items()]
    state = {"from_seq": from_seq, "ts_ms": ts_ms, "mode": "delay", "scope": "broker", "delay_max_ms": 5_000, "level": "packed"}
    enabled = {"produce_enabled": True, "fetch_enabled": True, "request_enabled": True}
    return {"samples": rows, "dim_group": groups, "dim_bound": noted, "states": [run | state | sensor | enabled]}
