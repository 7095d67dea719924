"""Compares the brokers' throttle times with Sluice's, group by group. Requires `quotas.store = "forward"`: the brokers keep the quotas.

Both sides count the same bytes at slightly different times. The window that a rate is measured over grows from N - 1 to N samples' length
and then shrinks again, depending on the start of the first sample, and the throttle time changes with it. Two throttle times of the same
answer can therefore differ by up to one sample's length. Such differences cancel out in sums, so sums are compared as well.

Two kinds of quota cannot agree. Sluice estimates the time of a broker's threads. A broker counts a fetch over its quota and withholds the
answer, so Sluice never sees the excess.

A run is a task. It returns how often each pair of throttle times occurs, which is exact and does not grow with the answers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey, with_tables
from pipeline.storage.paths import AnyPath, path_of_job, text_of
from pipeline.tasks import Executor, Job
from pipeline.text import group_name, human_ms

ALIKE_SHARE: Final = 0.1
"""Two throttle times of an answer are alike when they differ by at most a sample's length, or by this share of the longer one."""
ALIKE_ANSWERS_MIN: Final = 0.9
"""Share of a group's answers that must be alike for the group to be alike."""
SUM_DIFFERENCE_MAX: Final = 0.25
"""Highest relative difference of the sums of throttle times for the group to be alike. One sample's length is always allowed."""

ALIKE: Final = "alike"
APART: Final = "apart"
ESTIMATE: Final = "estimate"
"""The quota is on request time, which Sluice estimates."""
WITHHELD: Final = "withheld"
"""The quota is on fetches: the broker counts data that it withholds, and Sluice does not see them."""

_REQUEST: Final = "Request"
_FETCH: Final = "Fetch"
_Key = tuple[str, str, str, int]
"""Name, quota type, node, and sample length in ms; the length is 0 when Sluice has no quota for the group."""
_Ints = NDArray[np.int64]
_TABLES: Final = ("comparisons", "dim_group", "dim_client")


class RunToCompare(msgspec.Struct, frozen=True):
    """A task: the file sets of a run, with the tables that it reads."""

    directory: str
    manifests: tuple[Manifest, ...]


class Answers(msgspec.Struct, frozen=True):
    """The answers of a group: rows of the broker's throttle time, Sluice's, and the number of answers with these."""

    key: _Key
    rows: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Compared:
    """One group's answers that the broker or Sluice throttled. Times are in ms; differences are Sluice's value minus the broker's.

    Attributes:
        both, broker_only, sluice_only: number of answers, by which side throttled them.
        broker_ms, sluice_ms: sum of throttle times.
        apart_p95_ms, apart_max_ms: 95th percentile and maximum of the absolute difference.
        alike_percent: percentage of the answers that are alike.
    """

    group: str
    quota_type: str
    node: str
    answers: int
    both: int
    broker_only: int
    sluice_only: int
    broker_ms: int
    sluice_ms: int
    median_ms: float
    apart_p95_ms: float
    apart_max_ms: int
    alike_percent: float
    verdict: str


def compare(run_all: Executor, directory: AnyPath, runs: Mapping[RunKey, Sequence[FileSet]]) -> list[Compared]:
    """Return the comparison of each group, most answers first.

    Args:
        run_all: runs the tasks.
        directory: the metering directory.
        runs: the file sets of each run.

    Raises:
        BadInputError: the brokers kept the quotas in no run.
    """
    if not any(file_set.manifest.compares for own in runs.values() for file_set in own):
        raise BadInputError('--against-broker: nothing to compare; meter with quotas.store = "forward", where brokers keep the quotas')
    place = text_of(directory)
    parts = [RunToCompare(place, tuple(with_tables(one.manifest, _TABLES) for one in own)) for own in runs.values()]
    pieces: dict[_Key, list[_Ints]] = {}
    for of_run in run_all(JOB, parts):
        for one in of_run:
            pieces.setdefault(one.key, []).append(np.array(one.rows, np.int64))
    found = [_compared(key, np.concatenate(its)) for key, its in pieces.items()]
    return sorted(found, key=lambda one: (-one.answers, one.group, one.quota_type, one.node))


def dropped(runs: Mapping[RunKey, Sequence[FileSet]]) -> int:
    """Return the number of answers that were compared and not written."""
    return sum(file_set.manifest.dropped_comparisons for own in runs.values() for file_set in own)


def answers_of(part: RunToCompare) -> list[Answers]:
    """Return the answers of each group of a run. Group and client numbers have a meaning only within a run."""
    directory = path_of_job(part.directory)
    found = _throttles_of([FileSet(directory, manifest) for manifest in part.manifests])
    return [Answers(key, _counted(np.concatenate(pieces))) for key, pieces in found.items()]


JOB: Final = Job(answers_of, RunToCompare, list[Answers])


def _counted(throttles: _Ints) -> list[tuple[int, int, int]]:
    pairs, counts = np.unique(throttles, axis=0, return_counts=True)
    return [(broker, sluice, count) for (broker, sluice), count in zip(pairs.tolist(), counts.tolist(), strict=True)]


def _throttles_of(file_sets: Sequence[FileSet]) -> dict[_Key, list[_Ints]]:
    """Return the rows of a run, throttle times of the broker and of Sluice, by group."""
    found: dict[_Key, list[_Ints]] = {}
    groups: dict[int, dict[str, Any]] = {}
    clients: dict[int, dict[str, Any]] = {}
    for file_set in file_sets:
        groups |= {row["group_ref"]: row for row in file_set.read("dim_group").to_pylist()}
        clients |= {row["client_ref"]: row for row in file_set.read("dim_client").to_pylist()}
        rows = file_set.read("comparisons", columns=["quota_type", "group_ref", "client_ref", "broker_ms", "sluice_ms"])
        if not len(rows):
            continue
        refs = [rows.column(name).fill_null(-1).to_numpy().astype(np.int64) for name in ("group_ref", "client_ref")]
        refs[1] = np.where(refs[0] >= 0, -1, refs[1])  # the group identifies the row, so the client is not needed
        is_fetch = (rows.column("quota_type").to_numpy(zero_copy_only=False) == _FETCH).astype(np.int64)
        throttles = np.stack([rows.column(name).to_numpy().astype(np.int64) for name in ("broker_ms", "sluice_ms")], axis=1)
        kinds, kind_of = np.unique(np.stack([*refs, is_fetch], axis=1), axis=0, return_inverse=True)
        for at, (group_ref, client_ref, fetches) in enumerate(kinds.tolist()):
            quota_type = _FETCH if fetches else "Produce"
            key = _key(groups.get(group_ref), clients.get(client_ref), quota_type)
            found.setdefault(key, []).append(throttles[kind_of.reshape(-1) == at])
    return found


def _key(group: dict[str, Any] | None, client: dict[str, Any] | None, quota_type: str) -> _Key:
    if group is not None:
        return group_name(group), str(group["quota_type"]), str(group["node"] or "-"), int(group["window_ms"])
    who: dict[str, object] = (
        {"tag_user": client["principal"], "tag_client_id": client["client_id"]} if client is not None else {"scope": "unknown"}
    )
    return f"no quota here: {group_name(who)}", quota_type, "-", 0


def _compared(key: _Key, rows: _Ints) -> Compared:
    broker, sluice, number = rows[:, 0], rows[:, 1], rows[:, 2]
    group, quota_type, node, sample_ms = key
    difference = sluice - broker
    apart = np.abs(difference)
    allowed = np.maximum(sample_ms, ALIKE_SHARE * np.maximum(broker, sluice))
    answers, broker_ms, sluice_ms = int(number.sum()), int(broker @ number), int(sluice @ number)
    share = int(number[apart <= allowed].sum()) / answers
    return Compared(
        group=group,
        quota_type=quota_type,
        node=node,
        answers=answers,
        both=int(number[(broker > 0) & (sluice > 0)].sum()),
        broker_only=int(number[sluice <= 0].sum()),
        sluice_only=int(number[broker <= 0].sum()),
        broker_ms=broker_ms,
        sluice_ms=sluice_ms,
        median_ms=quantile(difference, number, 0.5),
        apart_p95_ms=quantile(apart, number, 0.95),
        apart_max_ms=int(apart.max()),
        alike_percent=100.0 * share,
        verdict=_verdict(quota_type, share, broker_ms, sluice_ms, sample_ms),
    )


def quantile(values: _Ints, number: _Ints, at: float) -> float:
    """Return a quantile of values that each occur `number` times, between two of them by linear interpolation."""
    order = np.argsort(values, kind="stable")
    ends, place = np.cumsum(number[order]), at * (int(number.sum()) - 1)
    low, high = values[order][np.searchsorted(ends, (math.floor(place), math.ceil(place)), side="right")].tolist()
    return float(low + (high - low) * (place - math.floor(place)))


def _verdict(quota_type: str, share: float, broker_ms: int, sluice_ms: int, sample_ms: int) -> str:
    if quota_type == _REQUEST:
        return ESTIMATE
    if quota_type == _FETCH and sample_ms:
        return WITHHELD
    if not sample_ms or share < ALIKE_ANSWERS_MIN:
        return APART
    sums_allowed = max(sample_ms, SUM_DIFFERENCE_MAX * max(broker_ms, sluice_ms))
    return ALIKE if abs(sluice_ms - broker_ms) <= sums_allowed else APART


HEADER: Final = (
    *("group", "type", "node", "answers", "both", "broker only", "Sluice only", "broker", "Sluice"),
    *("median", "p95", "longest", "alike", "verdict"),
)
"""Header of the table for people; `cells` returns its rows. The median is of Sluice's value minus the broker's. The 95th percentile and the
maximum are of the absolute difference."""


def cells(one: Compared) -> tuple[str, ...]:
    """Return one group's row of the table for people."""
    counts = (one.answers, one.both, one.broker_only, one.sluice_only)
    median = f"{one.median_ms:+.0f} ms"
    far = (human_ms(one.apart_p95_ms), human_ms(one.apart_max_ms))
    totals = (human_ms(one.broker_ms), human_ms(one.sluice_ms))
    return (
        one.group,
        one.quota_type,
        one.node,
        *(f"{count:,}" for count in counts),
        *totals,
        median,
        *far,
        f"{one.alike_percent:.1f} %",
        one.verdict,
    )
