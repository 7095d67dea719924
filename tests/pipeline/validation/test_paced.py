"""Runs with paced groups: each admission is recomputed from the schedule."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from metering_format.event_kinds import RECORD, UNCHECKED
from metering_format.places import PACED
from pipeline.replay.findings import Kind
from pipeline.validation.local import validate
from pipeline.validation.verdict import Verdict
from proxy.metering.conversion.bounds import bounds_of
from proxy.metering.conversion.packing import pack
from proxy.metering.conversion.runs import Runs
from proxy.metering.conversion.samples import STATE, Sensors
from quota.paced_schedule import MS_NS, PacedSchedule, cost_ns
from tests.support.metering.metering_directory import counts_of_types, write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID

BOUND, BURST_MS, START_MS = 100_000.0, 1_000, 1_790_000_000_000
Rows = list[dict[str, Any]]
Change = Callable[[Rows], None]


class Request(NamedTuple):
    """A request that passed."""

    ts_ms: int
    size: int
    checked: bool = True


def admitted(sizes: Sequence[int], *, pause_ms: int = 0) -> list[Request]:
    """Return requests that each pass as soon as the schedule lets them, after a pause."""
    schedule, now_ms, passed = PacedSchedule(BURST_MS * MS_NS), START_MS, []
    for size in sizes:
        now_ms += pause_ms
        now_ms += -(-schedule.wait_ns(now_ms * MS_NS) // MS_NS)
        schedule.charge(cost_ns(size, BOUND), now_ms * MS_NS)
        passed.append(Request(now_ms, size))
    return passed


def judged(directory: Path, file_sets: Sequence[Sequence[Request]], change: Change = lambda _rows: None, *, paced: bool = True) -> Verdict:
    """Write a run of one group with these file sets; return the verdict. `change` changes the rows of each."""
    sensors = Sensors(np.full(1, 11), np.full(1, 1_000), np.zeros(1, np.bool_))
    bounds = bounds_of([{"group_ref": 0, "from_seq": 0, "bound": BOUND, "is_paced": paced}])
    state, seq, previous = STATE.empty_table(), 0, None
    for number, requests in enumerate(file_sets):
        packed = pack(_runs(requests, seq), sensors, bounds, state, (RUN_ID, PROXY_ID), lists=True)
        state, rows = packed.state, packed.samples.to_pylist()
        counts = counts_of_types(rows, {0: "Produce"})
        change(rows)
        ends = requests[0].ts_ms, requests[-1].ts_ms
        fields = {"final": number == len(file_sets) - 1, "previous": previous, "settings": {PACED: BURST_MS}}
        last_seq = seq + len(requests) - 1
        previous = write_file_set(directory, _tables(rows, seq, ends[0]), seq, last_seq, *ends, counts, **fields)
        seq += len(requests)
    return validate(directory)


def _runs(requests: Sequence[Request], seq: int) -> Runs:
    count = len(requests)
    kinds = [RECORD if request.checked else UNCHECKED for request in requests]
    none = np.zeros(count, np.int32)
    times, sizes = np.array([request.ts_ms for request in requests]), np.array([request.size for request in requests])
    return Runs(none, np.arange(seq, seq + count), np.ones(count, np.int64), times, sizes, none, none, np.array(kinds, np.int32))


def _tables(rows: Rows, from_seq: int, ts_ms: int) -> dict[str, Rows]:
    run = {"run_id": RUN_ID, "proxy_id": PROXY_ID}
    group = {"group_ref": 0, "quota_type": "Produce", "scope": "broker", "node_id": 1, "tag_client_id": "etl", "first_seen_ms": START_MS}
    sensor = {"num_samples": 11, "window_ms": 1_000}
    bound = {"run_id": RUN_ID, "group_ref": 0, "from_seq": 0, "bound": BOUND, "rule": "client-id", "source": "file", "generation": 1}
    state = {"from_seq": from_seq, "ts_ms": ts_ms, "mode": "delay", "scope": "broker", "delay_max_ms": 5_000, "level": "packed"}
    enabled = {"produce_enabled": True, "fetch_enabled": True, "request_enabled": True}
    return {"samples": rows, "dim_group": [run | group | sensor], "dim_bound": [bound], "states": [run | state | sensor | enabled]}


def test_admissions_on_time_are_exact(tmp_path: Path) -> None:
    """A busy group of one paced run, over several file sets and after a rest, has no divergence although the window would have waited."""
    requests = admitted([30_000, 5_000, 100, 60_000] * 30)
    rested = [request._replace(ts_ms=request.ts_ms + 60_000) for request in requests]
    verdict = judged(tmp_path, [requests[:50], requests[50:], rested])
    assert verdict.kinds() == {}
    assert verdict.decisions == 240


@pytest.mark.parametrize("early_ms", [1, 400])
def test_a_request_that_passed_early_is_found(tmp_path: Path, early_ms: int) -> None:
    """A request that passed a millisecond before its time is EARLY."""
    requests = admitted([50_000] * 12)
    at = requests[9]
    verdict = judged(tmp_path, [[*requests[:9], at._replace(ts_ms=at.ts_ms - early_ms), *requests[10:]]])
    assert verdict.kinds() == {Kind.EARLY: 1}
    (findings,) = verdict.findings.values()
    assert findings.first[0].ts_ms == at.ts_ms - early_ms


def test_a_request_before_its_time_without_a_check_is_none(tmp_path: Path) -> None:
    """A request that passed unchecked, by an age step, is no divergence, and does not move the recomputed schedule."""
    requests = admitted([50_000] * 12)
    unchecked = Request(requests[5].ts_ms + 10, 80_000, checked=False)
    assert judged(tmp_path, [[*requests[:6], unchecked, *requests[6:]]]).kinds() == {}


def test_a_group_with_a_window_is_judged_by_it(tmp_path: Path) -> None:
    """In a run with paced groups, a group without a schedule needs the waits of its window."""
    requests = admitted([50_000] * 40)
    assert Kind.MISSED in judged(tmp_path, [requests], paced=False).kinds()


def test_a_changed_lead_is_found(tmp_path: Path) -> None:
    """A lead that differs from the recomputed one is MATH."""

    def change(rows: Rows) -> None:
        rows[2]["lead_ns"] -= 1

    verdict = judged(tmp_path, [admitted([50_000] * 12)], change)
    assert verdict.kinds() == {Kind.MATH: 1}


def test_a_run_begins_without_a_lead(tmp_path: Path) -> None:
    """The first row of a run has a lead of 0."""

    def change(rows: Rows) -> None:
        rows[0]["lead_ns"] = 5

    verdict = judged(tmp_path, [admitted([50_000] * 3)], change)
    assert Kind.MATH in verdict.kinds()


def test_a_smaller_size_is_found(tmp_path: Path) -> None:
    """A request that is recorded smaller than it was is found by the leads of the rows behind it."""

    def change(rows: Rows) -> None:
        rows[0]["val"][0] -= 1
        rows[0]["sum"] -= 1

    assert Kind.MATH in judged(tmp_path, [admitted([50_000] * 12)], change).kinds()


def test_the_rate_over_minutes_is_judged(tmp_path: Path) -> None:
    """A paced group at its bound for two minutes is within the ceiling, whatever the number of its connections."""
    verdict = judged(tmp_path, [admitted([50_000] * 240)])
    assert verdict.kinds() == {}
    assert [run.allowed for run in verdict.long_runs] == pytest.approx([1.02], abs=0.03)
