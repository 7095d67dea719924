"""Tasks of a recommendation: one file set for sensors, or a whole run for token buckets and schedules, which keep their state."""

from collections.abc import Iterable
from typing import Final

import msgspec

from metering_format.event_kinds import MUTATION
from metering_format.manifest import Manifest
from pipeline.file_set import FileSet
from pipeline.file_sets import checked_runs
from pipeline.recommend.demand import Demand, Part, add_parts, buckets_in, measured_in
from pipeline.recommend.schedules import paced_refs, schedules_in
from pipeline.storage.paths import AnyPath, path_of_job, text_of
from pipeline.tasks import Job
from pipeline.whatif.groups import Group, Sensor, sensors_of
from pipeline.whatif.work import GROUPS_AT_ONCE


class Work(msgspec.Struct, frozen=True):
    """One task: a file set and its sensors, or the file sets of a run and some of its token buckets, or of its paced groups."""

    directory: str
    manifests: tuple[Manifest, ...]
    sensors: tuple[Sensor, ...]
    is_of_buckets: bool
    is_of_schedules: bool = False


def plan_demand(directory: AnyPath) -> list[Work]:
    """Return the tasks.

    Raises:
        BadInputError, IncompleteError: the directory cannot be used, or names are not plain.
    """
    work = []
    for file_sets in checked_runs(directory).values():
        sensors, paced = sensors_of(file_sets).values(), paced_refs(file_sets)
        measured = tuple(sensor for sensor in sensors if sensor.group.quota_type != MUTATION and sensor.ref not in paced)
        scheduled = tuple(sensor for sensor in sensors if sensor.ref in paced)
        buckets = tuple(sensor for sensor in sensors if sensor.group.quota_type == MUTATION)
        manifests = tuple(file_set.manifest for file_set in file_sets)
        work += [Work(text_of(directory), (manifest,), measured, False) for manifest in manifests]
        if buckets:
            work.append(Work(text_of(directory), manifests, buckets, True))
        for begin in range(0, len(scheduled), GROUPS_AT_ONCE):
            work.append(Work(text_of(directory), manifests, scheduled[begin : begin + GROUPS_AT_ONCE], False, True))
    return work


def do(work: Work) -> list[Part]:
    """Execute one task.

    Raises:
        BadInputError: the level was `sample`.
    """
    file_sets = [FileSet(path_of_job(work.directory), manifest) for manifest in work.manifests]
    if work.is_of_buckets:
        return list(buckets_in(file_sets, work.sensors))
    if work.is_of_schedules:
        return list(schedules_in(file_sets, work.sensors))
    return [part for file_set in file_sets for part in measured_in(file_set, {sensor.ref: sensor for sensor in work.sensors})]


JOB: Final = Job(do, Work, list[Part])


def demands_of(done: Iterable[Iterable[Part]]) -> dict[Group, Demand]:
    """Return the demand of each group from the tasks' results."""
    demands: dict[Group, Demand] = {}
    for parts in done:
        add_parts(parts, demands)
    return demands
