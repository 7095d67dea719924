"""Recommendations for paced groups: from when requests came, whatever the bound made them wait."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from hypothesis import given, settings

from pipeline.recommend.demand import NeededDemand
from pipeline.recommend.work import demands_of, do, plan_demand
from pipeline.whatif.pacing import schedule_waits
from sluice_cli.meter import meter
from tests.pipeline.recommend.test_whatif_paced import ARRIVALS, BOUND, came
from tests.support.metering.metering_paced import BURST_MS, admitted, write_paced


def demand_of(directory: Path) -> NeededDemand:
    """Return the demand of the only group."""
    [demand] = demands_of(do(work) for work in plan_demand(directory)).values()
    assert isinstance(demand, NeededDemand)
    return demand


def proposals(directory: Path, *options: str) -> list[dict[str, Any]]:
    """Return what the command proposes."""
    reported = CliRunner().invoke(meter, ["recommend", "--in", str(directory), "--format", "json", *options])
    assert reported.exit_code == 0, reported.output
    found: list[dict[str, Any]] = json.loads(reported.stdout)["proposals"]
    return found


@settings(max_examples=5, deadline=None)
@given(ARRIVALS)
def test_the_bound_of_the_recording_does_not_change_the_demand(arrivals: Sequence[tuple[int, int]]) -> None:
    """Requests that waited under a low bound give the demand, and the rates, that they give under a bound without waits."""
    with tempfile.TemporaryDirectory() as place:
        low = demand_of(write_paced(Path(place, "low"), [admitted(came(arrivals), BOUND / 4)], {0: BOUND / 4}))
        high = demand_of(write_paced(Path(place, "high"), [admitted(came(arrivals), 1e9)], {0: 1e9}))
    assert [its.tolist() for its in low.by_second()] == [its.tolist() for its in high.by_second()]
    assert low.rates().tolist() == high.rates().tolist()


@settings(max_examples=8, deadline=None)
@given(ARRIVALS)
def test_at_the_highest_rate_no_request_waits(arrivals: Sequence[tuple[int, int]]) -> None:
    """Just above the highest of the rates no request waits, and below it one does."""
    asked = came(arrivals)
    with tempfile.TemporaryDirectory() as place:
        highest = float(demand_of(write_paced(Path(place), [admitted(asked, BOUND)], {0: BOUND})).rates().max())
    came_ms, value = np.array([at_ms for at_ms, _ in asked]), np.array([size for _, size in asked])
    checked = np.ones(len(value), np.bool_)
    assert not schedule_waits(came_ms, value, checked, highest * 1.0001 + 1e-6, BURST_MS).any()
    assert not highest or schedule_waits(came_ms, value, checked, highest * 0.99, BURST_MS).any()


def test_a_known_demand_is_proposed(tmp_path: Path) -> None:
    """A client that sends 100 kB/s for five minutes gets 100 kB/s, although its bound of 90 kB/s made it wait for half a minute."""
    requests = admitted([(100 * at, 10_000) for at in range(3_000)], 90_000.0)
    assert requests[-1].waited_ms > 30_000
    directory = write_paced(tmp_path, [requests[:1_000], requests[1_000:]], {0: 90_000.0})
    [proposal] = proposals(directory, "--percentile", "100", "--headroom", "1")
    assert (proposal["bound"], proposal["p50"], proposal["max"], proposal["pacing"]) == (100_000, 100_000, 100_000, "paced")
    assert proposal["confidence"] == "low"
    shown = CliRunner().invoke(meter, ["recommend", "--in", str(directory), "--explain"]).stdout
    assert "of paced groups, from p99 of the lowest rates at which requests would have passed without a wait" in shown
    assert "with a burst of 1 s, one for each of 300 active seconds" in shown


def test_a_group_with_a_window_in_a_paced_run_is_measured_by_it(tmp_path: Path) -> None:
    """In a run with both kinds of groups, each has the rates of its own kind."""
    steady = admitted([(500 * at, 10_000) for at in range(240)], 1e6)
    both = sorted([*steady, *(request._replace(group=1) for request in steady)], key=lambda request: request.ts_ms)
    directory = write_paced(tmp_path, [both], {0: 1e6, 1: 1e6}, paced=[0])
    assert [(one["group"], one["pacing"], one["span_s"]) for one in proposals(directory)] == [
        ("client-id client-0", "paced", 1.0),
        ("client-id client-1", "window", 10.0),
    ]
