"""Workers, and members of a fleet, that share paced groups write file sets from which every admission can be replayed."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from metering_format.tables import TABLES
from pipeline.manifest import file_sha256
from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from proxy.shared_usage.shared_groups import Shared
from tests.support.fleet.metering_members import Fleet, FleetStep
from tests.support.metering.metering_workers import Step, play

BURST_MS = 1_000
PAUSES_MS = st.sampled_from([0, 0, 0, 1, 5, 9, 40, 300, 1_500, 15_000])
KINDS = st.sampled_from(["record"] * 12 + ["unchecked", "publish", "expire", "rotate"])
SIZES = st.integers(1, 9_000)
CHANGES = st.sampled_from(["record"] * 12 + ["unchecked", "publish", "rotate", "pace", "pace", "pace"])
"""Without "expire": a group whose pacing changes belongs to a manager."""
STEPS = st.lists(st.builds(Step, st.integers(0, 2), KINDS, st.integers(0, 2), SIZES, PAUSES_MS), min_size=20, max_size=80)
OF_TWO_GROUPS = st.builds(Step, st.integers(0, 1), CHANGES, st.sampled_from([0, 2]), SIZES, PAUSES_MS)


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_what_paced_workers_write_is_accepted(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    """Whatever passes, checked or not, in whichever worker, the schedule of each is exact and their records of each other agree."""
    directory = tmp_path_factory.mktemp("metering")
    play(directory, steps, 3, burst_ms=BURST_MS)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))
    assert verdict.incomplete == []


EARLIER_THAN_THE_FILE_SET_BEFORE = [
    *(Step(0, "record", 0, 1, 0), Step(0, "record", 0, 1, 5), Step(0, "publish", 1, 1, 0), Step(0, "pace", 0, 1, 0)),
    Step(1, "record", 1, 1, 0),
]
"""The only event of a file set is usage of another worker in an earlier slot of time."""
CHANGING_STEPS = st.lists(st.builds(Step, st.integers(0, 1), CHANGES, st.integers(0, 2), SIZES, PAUSES_MS), min_size=20, max_size=80)


@settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(steps=EARLIER_THAN_THE_FILE_SET_BEFORE)
@given(steps=CHANGING_STEPS)
def test_what_workers_write_whose_pacing_changes_is_accepted(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    """Whenever each worker changes between window and schedule, its waits and leads are exact, and their records of each other agree."""
    directory = tmp_path_factory.mktemp("metering")
    play(directory, steps, burst_ms=BURST_MS, changes_pacing=True)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))
    assert verdict.incomplete == []


@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.builds(FleetStep, st.integers(0, 1), OF_TWO_GROUPS), min_size=20, max_size=60), begins_paced=st.booleans())
def test_what_paced_members_write_is_accepted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[FleetStep], *, begins_paced: bool
) -> None:
    """Whatever members of a fleet pass, and whenever their pacing changes, schedules are exact, and records of each other agree."""
    directory = tmp_path_factory.mktemp("metering")
    fleet = Fleet(directory, 2, 2, burst_ms=BURST_MS, changes_pacing=not begins_paced)
    fleet.play(steps)
    fleet.stop()
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))
    assert verdict.incomplete == []


def test_usage_elsewhere_that_is_recorded_later_is_accepted(tmp_path: Path) -> None:
    """A member that passes less than its part records usage of the others later, so that it passes all that it wants: 100 bytes each 60 ms.

    Its schedule is exact, and the records of all members agree.
    """
    fleet = Fleet(tmp_path, 3, burst_ms=BURST_MS)
    wants = [Step(0, "record", 0, size, 20) for size in (1_000, 1_000, 100)]
    fleet.play([FleetStep(member, step) for _ in range(200) for member, step in enumerate(wants)])
    passed = [group.own_total for member in fleet.members for group in [member.metering[0].groups[0]] if isinstance(group, Shared)]
    fleet.stop()
    assert passed[2] >= 0.9 * 200 * 100
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))
    assert verdict.incomplete == []


def test_a_lead_without_usage_of_others_is_found(tmp_path: Path) -> None:
    """A file from which usage of another worker is gone has leads that do not follow from its records."""
    play(tmp_path, [Step(at % 2, "record", 0, 3_000, 60) for at in range(60)], burst_ms=BURST_MS)
    for path in tmp_path.glob("manifests/**/*.json"):
        manifest = json.loads(path.read_bytes())
        (entry,) = (entry for entry in manifest["files"] if entry["table"] == "samples")
        place = tmp_path / entry["path"]
        rows = pq.read_table(place, partitioning=None).to_pylist()
        pq.write_table(pa.Table.from_pylist([row | {"remote_pos": []} for row in rows], schema=TABLES["samples"]), place)
        entry |= {"sha256": file_sha256(place), "bytes": place.stat().st_size}
        path.write_text(json.dumps(manifest))
    assert validate(tmp_path).kinds()["MATH"] > 0
