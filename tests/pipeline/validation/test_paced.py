"""Runs with paced groups: each admission is recomputed from the schedule."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.replay.findings import Kind
from pipeline.validation.local import validate
from pipeline.validation.rules.whole_run.rates import LongRun
from pipeline.validation.verdict import Verdict
from tests.support.metering.metering_paced import Change, Request, Rows, admitted, write_paced

BOUND = 100_000.0


def busy(sizes: Sequence[int]) -> list[Request]:
    """Return requests that come together, and pass as soon as the schedule lets them."""
    return admitted([(0, size) for size in sizes], BOUND)


def judged(directory: Path, file_sets: Sequence[Sequence[Request]], change: Change = lambda _rows: None, *, paced: bool = True) -> Verdict:
    """Return the verdict on a run of one group with these file sets."""
    return validate(write_paced(directory, file_sets, {0: BOUND}, change, paced=[0] if paced else []))


def test_admissions_on_time_are_exact(tmp_path: Path) -> None:
    """A busy group of one paced run, over several file sets and after a rest, has no divergence although the window would have waited."""
    requests = busy([30_000, 5_000, 100, 60_000] * 30)
    rested = [request._replace(ts_ms=request.ts_ms + 60_000) for request in requests]
    verdict = judged(tmp_path, [requests[:50], requests[50:], rested])
    assert verdict.kinds() == {}
    assert verdict.decisions == 240


def test_a_recorded_wait_belongs_to_its_row(tmp_path: Path) -> None:
    """The waits of a row have to add up; the wait itself follows from when the request came, which nothing else records."""

    def change(rows: Rows) -> None:
        rows[1]["thr_ms"][0] += 1

    verdict = judged(tmp_path, [busy([50_000] * 12)], change)
    assert Kind.MATH in verdict.kinds()


@pytest.mark.parametrize("early_ms", [1, 400])
def test_a_request_that_passed_early_is_found(tmp_path: Path, early_ms: int) -> None:
    """A request that passed a millisecond before its time is EARLY."""
    requests = busy([50_000] * 12)
    at = requests[9]
    verdict = judged(tmp_path, [[*requests[:9], at._replace(ts_ms=at.ts_ms - early_ms), *requests[10:]]])
    assert verdict.kinds() == {Kind.EARLY: 1}
    (findings,) = verdict.findings.values()
    assert findings.first[0].ts_ms == at.ts_ms - early_ms


def test_a_request_before_its_time_without_a_check_is_none(tmp_path: Path) -> None:
    """A request that passed unchecked, by an age step, is no divergence, and does not move the recomputed schedule."""
    requests = busy([50_000] * 12)
    unchecked = Request(requests[5].ts_ms + 10, 80_000, checked=False)
    assert judged(tmp_path, [[*requests[:6], unchecked, *requests[6:]]]).kinds() == {}


def test_a_group_with_a_window_is_judged_by_it(tmp_path: Path) -> None:
    """In a run with paced groups, a group without a schedule needs the waits of its window."""
    requests = [request._replace(waited_ms=0) for request in busy([50_000] * 40)]
    assert Kind.MISSED in judged(tmp_path, [requests], paced=False).kinds()


def test_both_kinds_of_groups_are_judged_in_one_run(tmp_path: Path) -> None:
    """A group with a window beside a paced one has no divergence when it stays below its bound: its rates are those of checked records."""
    steady = admitted([(500 * at, 10_000) for at in range(60)], BOUND)
    both = sorted([*steady, *(request._replace(group=1) for request in steady)], key=lambda request: request.ts_ms)
    verdict = validate(write_paced(tmp_path, [both], {0: BOUND, 1: BOUND}, paced=[0]))
    assert (verdict.kinds(), verdict.decisions) == ({}, 120)


def test_a_changed_lead_is_found(tmp_path: Path) -> None:
    """A lead that differs from the recomputed one is MATH."""

    def change(rows: Rows) -> None:
        rows[2]["lead_ns"] -= 1

    verdict = judged(tmp_path, [busy([50_000] * 12)], change)
    assert verdict.kinds() == {Kind.MATH: 1}


def test_a_run_begins_without_a_lead(tmp_path: Path) -> None:
    """The first row of a run has a lead of 0."""

    def change(rows: Rows) -> None:
        rows[0]["lead_ns"] = 5

    verdict = judged(tmp_path, [busy([50_000] * 3)], change)
    assert Kind.MATH in verdict.kinds()


def test_a_wait_of_nothing_is_found(tmp_path: Path) -> None:
    """A schedule lists no wait of 0 ms, even if the sums of its row agree with it."""

    def change(rows: Rows) -> None:
        row = next(row for row in rows if row["thr_ms"])
        row["thr_ms"] = row["applied_ms"] = [0] * len(row["thr_ms"])
        row.update(dict.fromkeys(("throttled_n", "throttle_ms_sum", "throttle_ms_max", "applied_ms_sum"), 0))

    assert Kind.MATH in judged(tmp_path, [busy([60_000] * 12)], change).kinds()


def test_a_wait_of_an_unchecked_record_is_found(tmp_path: Path) -> None:
    """A record without a check, which no schedule delays, has no wait."""

    def change(rows: Rows) -> None:
        rows[-1]["unchecked_pos"] = rows[-1]["thr_pos"][-1:]

    assert Kind.SPURIOUS in judged(tmp_path, [busy([50_000] * 12)], change).kinds()


def test_a_smaller_size_is_found(tmp_path: Path) -> None:
    """A request that is recorded smaller than it was is found by the leads of the rows behind it."""

    def change(rows: Rows) -> None:
        rows[0]["val"][0] -= 1
        rows[0]["sum"] -= 1

    assert Kind.MATH in judged(tmp_path, [busy([50_000] * 12)], change).kinds()


def highest(verdict: Verdict) -> LongRun:
    assert verdict.long_runs.highest is not None
    return verdict.long_runs.highest


def test_time_without_requests_between_file_sets_counts(tmp_path: Path) -> None:
    """A group that passes one large request in ten seconds is below its bound, also when the pauses lie between two file sets."""
    requests = admitted([(10_000 * at, 950_000) for at in range(20)], BOUND)
    verdict = judged(tmp_path, [requests[at : at + 2] for at in range(0, 20, 2)])
    assert verdict.kinds() == {}
    assert highest(verdict).ratio == pytest.approx(0.98, abs=0.04)


def test_the_rate_over_minutes_is_judged(tmp_path: Path) -> None:
    """A paced group at its bound for two minutes is within the ceiling, whatever the number of its connections."""
    verdict = judged(tmp_path, [busy([50_000] * 240)])
    assert verdict.kinds() == {}
    assert highest(verdict).allowed == pytest.approx(1.02, abs=0.03)


def test_connections_of_a_paced_group_do_not_matter(tmp_path: Path) -> None:
    """The evidence of a rate above the ceiling of a paced group names no connections: usage, which counts them, is not read."""
    requests = [request for each in busy([50_000] * 240) for request in (each, Request(each.ts_ms, 25_000, checked=False))]
    verdict = judged(tmp_path, [requests])
    assert verdict.kinds() == {Kind.RATE: 1}
    (findings,) = verdict.findings.values()
    assert not any("connections" in line for line in findings.first[0].evidence)
