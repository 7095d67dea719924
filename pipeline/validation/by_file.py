"""Checks groups and bounds against a quota file. Only bounds that the proxy took from this very file are checked."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.quotas.file import QuotaFile, read_quota_file
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.storage.paths import AnyPath
from pipeline.whatif.groups import CONNECTION, clients_of, display_name, place, sensors_of
from quota.entity import UNLIMITED

STATIC_DEFAULT: Final = "static default"
REGROUP: Final = "regroup"


def check_by_file(runs: Mapping[tuple[str, str], Sequence[FileSet]], path: AnyPath) -> dict[tuple[str, str], Findings]:
    """Return, by run, each group or bound that differs from the quota file.

    Args:
        runs: the file sets of each run.
        path: the quota file.

    Raises:
        BadInputError: the file is not a quota file, names are hidden, or no bound was taken from this file.
    """
    quotas = read_quota_file(path)
    source = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    checked = 0
    found: dict[tuple[str, str], Findings] = {}
    for key, file_sets in runs.items():
        bounds = {
            (row["group_ref"], row["from_seq"]): row for file_set in file_sets for row in _bounds(file_set) if row["source"] == source
        }
        checked += len(bounds)
        found[key] = _check_run(file_sets, list(bounds.values()), quotas) if bounds else Findings()
    if not checked:
        raise BadInputError(f"--quotas {path}: no recorded bound comes from this file; name the quotas.toml that was in effect")
    return found


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
