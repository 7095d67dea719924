"""Tasks of a what-if, each a pure function of files. They run in this process or as Spark tasks, with the same result."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from metering_format.event_kinds import MUTATION
from metering_format.manifest import Manifest
from metering_format.places import PACED as BURST
from pipeline.file_set import FileSet
from pipeline.file_sets import checked_runs
from pipeline.quotas.file import QuotaFile
from pipeline.storage.paths import AnyPath, path_of_job, text_of
from pipeline.tasks import Job, run_local
from pipeline.whatif.file_set_outcome import file_set_outcomes
from pipeline.whatif.groups import GroupAssignment, Sensor, clients_of, place, sensors_of
from pipeline.whatif.outcome import Outcome, Outcomes, add_up
from pipeline.whatif.pacing import PACED, PACED_TYPES, Pacing
from pipeline.whatif.run_outcome import AS_RECORDED, CLOSED, members_of, run_outcomes

GROUPS_AT_ONCE: Final = 256
"""Number of groups that one task plays through a whole run; it bounds the task's memory."""

Scenario = dict[int, GroupAssignment]


class Work(msgspec.Struct, frozen=True):
    """One task.

    Attributes:
        manifests: manifests in order. For a task on one file set, it is the last one, after those that the warm-up may need.
        is_whole_run: all manifests are played.
        scenarios: new group of each sensor, for each quota file.
    """

    directory: str
    manifests: tuple[Manifest, ...]
    is_whole_run: bool
    mode: str
    sensors: tuple[Sensor, ...]
    scenarios: tuple[tuple[GroupAssignment, ...], ...]
    pacing: Pacing = AS_RECORDED


def plan_work(directory: AnyPath, files: Sequence[QuotaFile], mode: str, *, pacing: Pacing = AS_RECORDED, since_ms: int = 0) -> list[Work]:
    """Return the tasks of a what-if. File sets that ended before `since_ms` (wall clock) are left out.

    Raises:
        BadInputError, IncompleteError: the directory cannot be used.
    """
    work: list[Work] = []
    for run in checked_runs(directory).values():
        file_sets = [file_set for file_set in run if file_set.manifest.last_ts_ms >= since_ms]
        if not file_sets:
            continue
        sensors = sensors_of(file_sets)
        clients = clients_of(file_sets)
        scenarios = [{placed.ref: placed for placed in place(sensors.values(), clients, quotas, mode)} for quotas in files]
        may_be_paced = pacing.choice == PACED or any(BURST in file_set.manifest.settings for file_set in file_sets)
        alone, together = _parted(scenarios, mode, (*PACED_TYPES, MUTATION) if may_be_paced else (MUTATION,))
        work += _by_file_set(directory, file_sets, sensors, alone, mode)
        work += _by_groups(directory, file_sets, sensors, together, mode, pacing)
    return work


def _parted(scenarios: Sequence[Scenario], mode: str, keep_state: Sequence[str]) -> tuple[list[Scenario], list[Scenario]]:
    """Separate sensors that stay alone from those that need the whole run.

    Token buckets and schedules need it, since they keep their state: the quota types of `keep_state`.
    """
    if mode == CLOSED:
        return [{} for _ in scenarios], list(scenarios)
    alone: list[Scenario] = []
    together: list[Scenario] = []
    for scenario in scenarios:
        shared = {
            item.ref
            for members in members_of(scenario)
            if len(members) > 1 or members[0].group.quota_type in keep_state
            for item in members
        }
        alone.append({ref: placed for ref, placed in scenario.items() if ref not in shared})
        together.append({ref: placed for ref, placed in scenario.items() if ref in shared})
    return alone, together


def _by_file_set(
    directory: AnyPath, file_sets: Sequence[FileSet], sensors: dict[int, Sensor], scenarios: Sequence[Scenario], mode: str
) -> Iterable[Work]:
    if not any(scenarios):
        return
    span_ms = max((sensor.num_samples + 1) * sensor.window_ms for sensor in sensors.values())
    for number, file_set in enumerate(file_sets):
        since_ms = file_set.manifest.first_ts_ms - span_ms
        near = [earlier.manifest for earlier in file_sets[:number] if earlier.manifest.last_ts_ms > since_ms]
        placed = tuple(tuple(scenario.values()) for scenario in scenarios)
        yield Work(text_of(directory), (*near, file_set.manifest), False, mode, tuple(sensors.values()), placed)


def _by_groups(
    directory: AnyPath,
    file_sets: Sequence[FileSet],
    sensors: dict[int, Sensor],
    scenarios: Sequence[Scenario],
    mode: str,
    pacing: Pacing,
) -> Iterable[Work]:
    manifests = tuple(file_set.manifest for file_set in file_sets)
    for number, scenario in enumerate(scenarios):
        groups = members_of(scenario)
        for begin in range(0, len(groups), GROUPS_AT_ONCE):
            placed = tuple(item for members in groups[begin : begin + GROUPS_AT_ONCE] for item in members)
            needed = tuple(sensors[item.ref] for item in placed)
            own = tuple(placed if number == at else () for at in range(len(scenarios)))
            yield Work(text_of(directory), manifests, True, mode, needed, own, pacing)


def do(work: Work) -> list[list[Outcome]]:
    """Execute one task; return the outcomes of each scenario."""
    file_sets = [FileSet(path_of_job(work.directory), manifest) for manifest in work.manifests]
    sensors = {sensor.ref: sensor for sensor in work.sensors}
    scenarios = [{placed.ref: placed for placed in scenario} for scenario in work.scenarios]
    if work.is_whole_run:
        return run_outcomes(file_sets, sensors, scenarios, work.mode, work.pacing)
    return file_set_outcomes(file_sets[-1], file_sets[:-1], sensors, scenarios)


JOB: Final = Job(do, Work, list[list[Outcome]])


def run_all(work: Sequence[Work]) -> list[list[list[Outcome]]]:
    """Execute all tasks in this process."""
    return run_local(JOB, work)


def outcomes_of(done: Sequence[Sequence[Sequence[Outcome]]], scenarios: int) -> list[Outcomes]:
    """Return the sum of the tasks' outcomes, by scenario and group."""
    return [add_up(task[number] for task in done) for number in range(scenarios)]
