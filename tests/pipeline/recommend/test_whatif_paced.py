"""What-ifs of paced groups, compared with a schedule that decides one request at a time."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.quotas.file import quota_file_of
from pipeline.whatif.outcome import Outcome, Waits
from pipeline.whatif.pacing import PACED, WINDOW, Pacing, schedule_under, schedule_waits
from pipeline.whatif.work import outcomes_of, plan_work, run_all
from quota.groups.group import QuotaGroup
from quota.paced_schedule import MS_NS, PacedSchedule, cost_ns, ms_after
from quota.throttle import INT32_MAX
from sluice_cli.meter import meter
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.metering_paced import BURST_MS, Request, admitted, write_paced
from tests.support.metering.metering_rows import Event, Sensor
from tests.support.metering.metering_scene import START_MS

BOUND = 100_000.0
ARRIVALS = st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 200_000)), min_size=1, max_size=30)
"""Pause in ms before each request, and its bytes."""


def came(arrivals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (ms since the start, bytes)."""
    times = np.cumsum([pause_ms for pause_ms, _ in arrivals]).tolist()
    return list(zip(times, (size for _, size in arrivals), strict=True))


def played(directory: Path, bound: float, mode: str = "open", pacing: Pacing = Pacing()) -> Outcome:  # noqa: B008  # frozen
    """Return the outcome of the only group with another bound."""
    quotas = quota_file_of(f'[[quota]]\nclient-id = "client-0"\nproducer_byte_rate = {bound}\n', "test.toml")
    [found] = outcomes_of(run_all(plan_work(directory, [quotas], mode, pacing=pacing)), 1)
    [outcome] = found.values()
    return outcome


def waits_of(requests: Sequence[Request]) -> Waits:
    return Waits.of(np.array([request.waited_ms for request in requests], np.int64))


@settings(max_examples=8, deadline=None)
@given(ARRIVALS, st.integers(0, 30))
@pytest.mark.parametrize("mode", ["open", "regroup", "closed"])
def test_the_same_bound_gives_the_recorded_waits(mode: str, arrivals: Sequence[tuple[int, int]], cut: int) -> None:
    """Under its own bound, a paced group has the recorded waits to the millisecond, over two file sets, and everything is sent."""
    requests = admitted(came(arrivals), BOUND)
    with tempfile.TemporaryDirectory() as place:
        parts = [part for part in (requests[:cut], requests[cut:]) if part]
        outcome = played(write_paced(Path(place), parts, {0: BOUND}), BOUND, mode)
    assert outcome.waits == outcome.recorded == waits_of(requests)
    assert outcome.units_sent == outcome.units_offered
    assert (outcome.paced_today, outcome.paced) == (True, True)


@settings(max_examples=8, deadline=None)
@given(ARRIVALS, st.sampled_from([1.0, 40_000.0, 250_000.0, 1e15]))
def test_another_bound_gives_the_waits_of_its_schedule(arrivals: Sequence[tuple[int, int]], bound: float) -> None:
    """Under another bound, the waits are those of a schedule with that bound for requests that come at the same times."""
    with tempfile.TemporaryDirectory() as place:
        directory = write_paced(Path(place), [admitted(came(arrivals), BOUND)], {0: BOUND})
        assert played(directory, bound).waits == waits_of(admitted(came(arrivals), bound))


def test_requests_that_passed_late_wait_no_longer_than_recorded(tmp_path: Path) -> None:
    """A request that passed later than the schedule let it, by a late timer or behind another member, waits less in the replay."""
    on_time = admitted([(0, 50_000)] * 12, BOUND)
    late = [request._replace(ts_ms=request.ts_ms + 3 * at, waited_ms=request.waited_ms + 3 * at) for at, request in enumerate(on_time)]
    outcome = played(write_paced(tmp_path, [late], {0: BOUND}), BOUND)
    assert outcome.recorded == waits_of(late)
    assert outcome.waits == waits_of(on_time)


def test_a_recorded_window_is_played_by_a_schedule(tmp_path: Path) -> None:
    """With --pacing paced the requests of a group with a window wait for a schedule, with the burst that is asked for."""
    events = [Event(0, START_MS + 100 * at, 30_000) for at in range(60)]
    directory = write_directory(tmp_path, [events[:25], events[25:]], {0: Sensor(0, BOUND)})
    for burst_ms in (100, 5_000):
        schedule, expected = PacedSchedule(burst_ms * MS_NS), []
        for event in events:
            expected.append(ms_after(schedule.wait_ns(event.ts_ms * MS_NS)))
            schedule.charge(cost_ns(event.value, BOUND), event.ts_ms * MS_NS)
        outcome = played(directory, BOUND, pacing=Pacing(PACED, burst_ms))
        assert outcome.waits == Waits.of(np.array(expected, np.int64))
        assert (outcome.paced_today, outcome.paced) == (False, True)


def test_a_paced_recording_is_played_by_a_window(tmp_path: Path) -> None:
    """With --pacing window the requests of a paced group go through a sensor at the times at which they came."""
    arrivals = [(80 * at, 30_000) for at in range(60)]
    directory = write_paced(tmp_path, [admitted(arrivals, BOUND)], {0: BOUND})
    group = QuotaGroup({}, BOUND, lazy=False)
    expected = [max(group.record(float(size), START_MS + at_ms), 0) for at_ms, size in arrivals]
    outcome = played(directory, BOUND, pacing=Pacing(WINDOW))
    assert outcome.waits == Waits.of(np.array(expected, np.int64))
    assert outcome.recorded.number > 0


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(-50_000, 2**34), st.booleans()), max_size=40),
    st.sampled_from([0.5, 1e3, 1e5 / 3, 1e9, 1e16, float("inf")]),
    st.integers(10, 60_000),
)
def test_waits_of_a_whole_group_equal_those_of_one_request_at_a_time(
    rows: list[tuple[int, int, bool]], bound: float, burst_ms: int
) -> None:
    """The waits that are computed at once equal those of the function that decides one request at a time, also beyond 63 bits."""
    came_ms = START_MS + np.cumsum([pause_ms for pause_ms, _, _ in rows], dtype=np.int64)
    value, checked = np.array([size for _, size, _ in rows], np.int64), np.array([is_checked for _, _, is_checked in rows], np.bool_)
    decide = schedule_under(bound, burst_ms, value, checked)
    expected = [decide(at, now_ms)[0] for at, now_ms in enumerate(came_ms.tolist())]
    assert schedule_waits(came_ms, value, checked, bound, burst_ms).tolist() == expected
    assert max(expected, default=0) <= INT32_MAX


def test_the_command_compares_both_pacings(tmp_path: Path) -> None:
    """The table has the pacing of each group; JSON and CSV have it as recorded and as played; a window has no burst."""
    directory = write_paced(tmp_path / "in", [admitted([(0, 60_000)] * 80, BOUND)], {0: BOUND})
    (tmp_path / "q.toml").write_text('[[quota]]\nclient-id = "client-0"\nproducer_byte_rate = 50000\n')
    arguments = ["whatif", "--in", str(directory), "--quotas", str(tmp_path / "q.toml")]
    as_recorded = CliRunner().invoke(meter, arguments)
    assert as_recorded.exit_code == 0
    assert "  paced  " in as_recorded.stdout
    assert "note        waits above 25 s" in as_recorded.stdout
    by_window = CliRunner().invoke(meter, [*arguments, "--pacing", "window", "--explain"])
    assert "paced -> window" in by_window.stdout
    assert "pacing        window, recorded with paced" in by_window.stdout
    [scenario] = json.loads(CliRunner().invoke(meter, [*arguments, "--pacing", "window", "--format", "json"]).stdout)["scenarios"]
    assert [(group["pacing_today"], group["pacing"]) for group in scenario["groups"]] == [(PACED, WINDOW)]
    refused = CliRunner().invoke(meter, [*arguments, "--pacing", "window", "--paced-burst-ms", str(BURST_MS)])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "a window has no burst" in refused.stderr
