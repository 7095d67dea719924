"""Workers that share paced groups write file sets from which every admission can be replayed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from tests.support.metering.metering_workers import Step, play

BURST_MS = 1_000
PAUSES_MS = st.sampled_from([0, 0, 0, 1, 5, 9, 40, 300, 1_500, 15_000])
KINDS = st.sampled_from(["record"] * 12 + ["unchecked", "publish", "expire", "rotate"])
STEPS = st.lists(st.builds(Step, st.integers(0, 2), KINDS, st.integers(0, 2), st.integers(1, 9_000), PAUSES_MS), min_size=20, max_size=120)


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_what_paced_workers_write_is_accepted(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    """Whatever passes, checked or not, in whichever worker, the schedule of each is exact and their records of each other agree."""
    directory = tmp_path_factory.mktemp("metering")
    play(directory, steps, 3, burst_ms=BURST_MS)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))
    assert verdict.incomplete == []
