"""One stem judged on its own: the unit of work, on one core here or on many in a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import BadInputError
from pipeline.manifest import TypeCount
from pipeline.replay.check import check_decisions, check_samples
from pipeline.replay.decisions import NO_CAP, Sensor, decide
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Rows, unpack
from pipeline.stem import Stem, python_rows
from pipeline.validation.application import check_applied
from pipeline.validation.bounds import check_bounds
from pipeline.validation.sequence import check_order, check_sequence

REQUEST: Final = "Request"
NEVER_CHECKED: Final = "ControllerMutation"  # a token bucket: notes in `events`, judged elsewhere


@dataclass(slots=True)
class StemVerdict:
    """What judging one stem gave.

    Attributes:
        decisions: checked and unchecked records that were replayed.
        replayed_exactly: those that went through the fold of doubles.
        counts: what the rows add up to, by quota type, to be compared with the manifest.
        by_group: decisions of each group.
    """

    stem: str
    decisions: int = 0
    replayed_exactly: int = 0
    findings: Findings = field(default_factory=Findings)
    counts: dict[str, TypeCount] = field(default_factory=dict)
    by_group: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Groups that measure alike."""

    quota_type: str
    sensor: Sensor


def judge_stem(stem: Stem, before: Sequence[Stem]) -> StemVerdict:
    """Replay the decisions of one stem.

    Args:
        before: earlier stems of the same run, in order; as many are read as the warm-up needs.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    verdict = StemVerdict(stem.manifest.stem)
    samples = stem.read("samples")
    groups = python_rows(stem.read("dim_group"))
    kinds = _kinds(stem, groups)
    if len(samples):
        warm_up = _warm_up(stem, before, samples, kinds)
        for kind, refs in _by_kind(kinds).items():
            _judge_kind(kind, refs, samples, warm_up, stem, verdict)
    check_sequence(samples, stem.read("events"), stem.read("gaps"), stem.manifest, verdict.findings)
    _check_sums(stem, verdict)
    return verdict


def _judge_kind(kind: _Kind, refs: list[int], samples: pa.Table, warm_up: pa.Table, stem: Stem, verdict: StemVerdict) -> None:
    own = _of_groups(samples, refs)
    if not len(own):
        return
    first_seq = stem.manifest.first_seq
    try:
        rows = unpack(pa.concat_tables([_of_groups(warm_up, refs), own]))
    except ValueError as error:
        raise BadInputError(f"{stem.manifest.stem}: {error}; meter at level packed (the default) or trace") from error
    judged = rows.first_seq >= first_seq
    findings = verdict.findings
    whole = check_samples(rows, kind.sensor, judged, findings)
    if not whole.all():
        return
    decided = decide(rows, kind.sensor)
    check_decisions(rows, decided, kind.sensor, judged, findings)
    check_order(rows, judged, findings)
    check_bounds(rows, judged, stem, findings)
    check_applied(rows, judged, stem, findings)
    verdict.decisions += int(judged[rows.row_of].sum())
    verdict.replayed_exactly += decided.replayed_exactly
    _count(kind.quota_type, rows, judged, verdict)


def _count(quota_type: str, rows: Rows, judged: Any, verdict: StemVerdict) -> None:
    known = verdict.counts.get(quota_type, TypeCount())
    verdict.counts[quota_type] = TypeCount(
        known.decisions + int(rows.count[judged].sum()),
        known.units + int(rows.total[judged].sum()),
        known.throttled + int(rows.throttled_n[judged].sum()),
        known.throttle_ms + int(rows.throttle_ms_sum[judged].sum()),
    )
    refs, at = np.unique(rows.group_ref[judged], return_inverse=True)
    for ref, number in zip(refs, np.bincount(at, weights=rows.count[judged]), strict=True):
        verdict.by_group[int(ref)] = int(number)


def _check_sums(stem: Stem, verdict: StemVerdict) -> None:
    for quota_type, told in stem.manifest.counts.items():
        if quota_type == NEVER_CHECKED:
            continue
        found = verdict.counts.get(quota_type, TypeCount())
        if found != told:
            verdict.findings.add(
                Finding(
                    Kind.GAP,
                    WHOLE_FILE,
                    stem.manifest.first_seq,
                    stem.manifest.first_ts_ms,
                    str(told),
                    str(found),
                    f"sums of {quota_type} against the manifest",
                )
            )


def _kinds(stem: Stem, groups: list[dict[str, Any]]) -> dict[int, _Kind]:
    kinds: dict[int, _Kind] = {}
    for group in groups:
        if group["num_samples"] < 1 or group["window_ms"] < 1:
            raise BadInputError(
                f"{stem.manifest.stem}: group {group['group_ref']} has {group['num_samples']} samples of {group['window_ms']} ms"
            )
        cap_ms = NO_CAP if group["cap_ms"] is None else group["cap_ms"]
        is_request_time = group["quota_type"] == REQUEST
        kinds[group["group_ref"]] = _Kind(group["quota_type"], Sensor(group["num_samples"], group["window_ms"], cap_ms, is_request_time))
    return kinds


def _by_kind(kinds: dict[int, _Kind]) -> dict[_Kind, list[int]]:
    refs: dict[_Kind, list[int]] = {}
    for ref, kind in kinds.items():
        refs.setdefault(kind, []).append(ref)
    return refs


def _warm_up(stem: Stem, before: Sequence[Stem], samples: pa.Table, kinds: dict[int, _Kind]) -> pa.Table:
    """Rows of earlier stems whose samples can still be live, or go on, at this stem's first event."""
    unknown = set(pc.unique(samples.column("group_ref")).to_pylist()) - set(kinds)
    if unknown:
        raise BadInputError(f"{stem.manifest.stem}: rows of group {min(unknown)}, which dim_group does not name; the file is not whole")
    span_ms = max((kind.sensor.num_samples + 1) * kind.sensor.window_ms for kind in kinds.values())
    after_ms = stem.manifest.first_ts_ms - span_ms
    parts = [samples.schema.empty_table()]
    for earlier in reversed(before):
        if earlier.manifest.last_ts_ms <= after_ms:
            break
        parts.append(earlier.read("samples", after_ms=after_ms))
    return pa.concat_tables(reversed(parts))


def _of_groups(table: pa.Table, refs: list[int]) -> pa.Table:
    return table.filter(pc.is_in(table.column("group_ref"), value_set=pa.array(refs, pa.int32())))
