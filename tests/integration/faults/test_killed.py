"""SIGKILL under traffic, ten times, in front of a real broker; `python -m bench.kills` kills a thousand times."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import KRAFT_TARGET, Target
from tests.support.processes.kills import Stretch, kill_often

KILLS = 10


@pytest.mark.timeout(180)
@pytest.mark.parametrize("target", [KRAFT_TARGET], indirect=True)
def test_ten_kills_in_mid_traffic_lose_double_and_reorder_nothing(target: Target, tmp_path: Path) -> None:
    """Ten kills of Sluice lose, duplicate and reorder no record of idempotent producers, and every metering decision is in the files or
    counted as lost.
    """
    stretch = kill_often(target.bootstrap, target.topic("killed"), tmp_path, KILLS, seed=0)
    assert stretch.kills == KILLS
    assert stretch.in_flight >= KILLS  # the kills hit records in flight
    assert stretch.dropped > 0
    assert stretch == replace(
        Stretch(seed=0, mode="mute", level="trace", kills=KILLS),
        acknowledged=stretch.acknowledged,
        in_flight=stretch.in_flight,
        decisions=stretch.decisions,
        noted=stretch.noted,
        dropped=stretch.dropped,
    )
