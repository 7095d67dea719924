"""Checks groups and bounds against a quota file. Only bounds that the proxy took from this very file are checked. A run is a task."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey, with_tables
from pipeline.quotas.file import QuotaFile, quota_file_of, read_quota_file
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.storage.paths import AnyPath, path_of_job, text_of
from pipeline.tasks import Executor, Job
from pipeline.whatif.groups import CONNECTION, clients_of, display_name, place, sensors_of
from quota.entity import UNLIMITED

STATIC_DEFAULT: Final = "static default"
REGROUP: Final = "regroup"
_TABLES: Final = ("dim_bound", "dim_group", "dim_client")


class RunToCheck(msgspec.Struct, frozen=True):
    """A task: the file sets of a run, with the tables that it reads, and the quota file."""

    directory: str
    manifests: tuple[Manifest, ...]
    text: str


class CheckedRun(msgspec.Struct, frozen=True):
    """The number of bounds of a run that came from the quota file, and what differs from it."""

    bounds: int
    findings: Findings


def check_by_file(run_all: Executor, directory: AnyPath, runs: Mapping[RunKey, Sequence[FileSet]], path: AnyPath) -> dict[RunKey, Findings]:
    """Return, by run, each group or bound that differs from the quota file.

    Args:
        run_all: runs the tasks.
        directory: the metering directory.
        runs: the file sets of each run.
        path: the quota file.

    Raises:
        BadInputError: the file is not a quota file, names are hidden, or no bound was taken from this file.
    """
    read_quota_file(path)  # refused before any task runs
    text, place = path.read_bytes().decode(), text_of(directory)  # line ends stay, since they are in the digest
    parts = [RunToCheck(place, tuple(with_tables(one.manifest, _TABLES) for one in own), text) for own in runs.values()]
    checked = run_all(JOB, parts)
    if not any(one.bounds for one in checked):
        raise BadInputError(f"--quotas {path}: no recorded bound comes from this file; name the quotas.toml that was in effect")
    return {key: one.findings for key, one in zip(runs, checked, strict=True)}


def check_run(part: RunToCheck) -> CheckedRun:
    """Check the bounds of a run that came from the quota file."""
    source, directory = f"sha256:{hashlib.sha256(part.text.encode()).hexdigest()}", path_of_job(part.directory)
    file_sets = [FileSet(directory, manifest) for manifest in part.manifests]
    bounds = {(row["group_ref"], row["from_seq"]): row for file_set in file_sets for row in _bounds(file_set) if row["source"] == source}
    findings = _check_run(file_sets, list(bounds.values()), quota_file_of(part.text, "--quotas")) if bounds else Findings()
    return CheckedRun(len(bounds), findings)


JOB: Final = Job(check_run, RunToCheck, CheckedRun)


def _bounds(file_set: FileSet) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = file_set.read("dim_bound", columns=["group_ref", "from_seq", "bound", "rule", "source"]).to_pylist()
    return rows


def _check_run(file_sets: Sequence[FileSet], bounds: Sequence[Mapping[str, Any]], quotas: QuotaFile) -> Findings:
    findings = Findings()
    sensors = sensors_of(file_sets)
    placed = {one.ref: one for one in place(sensors.values(), clients_of(file_sets), quotas, REGROUP)}
    for row in bounds:
        one = placed.get(row["group_ref"])
        if one is None or one.bound is None or not one.is_certain:
            continue
        group = sensors[row["group_ref"]].group
        if one.group != group:
            findings.add(_finding(Kind.GROUP, row, display_name(one.group), display_name(group), "group of its clients by the quota file"))
        elif row["bound"] != one.bound and not (one.bound >= UNLIMITED and _is_set_elsewhere(row, group.quota_type)):
            findings.add(
                _finding(Kind.BOUND, row, repr(one.bound), repr(row["bound"]), f"bound of {display_name(group)} by the quota file")
            )
    return findings


def _is_set_elsewhere(row: Mapping[str, Any], quota_type: str) -> bool:
    """Whether the bound is a static default or a limit of sluice.toml, which a quota file does not contain."""
    return row["rule"] == STATIC_DEFAULT or quota_type == CONNECTION


def _finding(kind: Kind, row: Mapping[str, Any], expected: str, recorded: str, what: str) -> Finding:
    return Finding(kind, row["group_ref"], row["from_seq"], None, expected, recorded, what)
