"""Judges one file set by itself. This is the unit of work of the validator, on one core or on a cluster.

`together.py` applies the same rules to small file sets: a rule for decisions that is called here has to be called there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import MUTATION, SKIPPED
from metering_format.manifest import TypeCount
from metering_format.places import PACED, SHARED
from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.replay.check import check_decisions, check_samples
from pipeline.replay.decisions import NO_CAP, Sensor, decide
from pipeline.replay.findings import Findings
from pipeline.replay.rows import COLUMNS, LEAD, REMOTE_POSITIONS, Flags, Ints, Rows
from pipeline.replay.unpacking import unpack_in_parts
from pipeline.text import group_name
from pipeline.validation.rules.application import Observed, SettingsIntervals, check_applied, check_states
from pipeline.validation.rules.bounds import RecordedBounds, check_bounds
from pipeline.validation.rules.buckets import BucketEnds, judge_buckets
from pipeline.validation.rules.described import check_described
from pipeline.validation.rules.gaps import Losses, Resumptions, resumptions
from pipeline.validation.rules.group_bits import bits_of, united
from pipeline.validation.rules.long_run import GroupConditions, ThrottleWindow, fastest, paced_windows_in, throttle_windows
from pipeline.validation.rules.schedules import check_schedules
from pipeline.validation.rules.sequence import NumberOrder, check_sequence, check_times
from pipeline.validation.rules.settings import State, states_of
from pipeline.validation.rules.shares import check_shares
from pipeline.validation.rules.sums import REMOTE_SUM_COLUMNS, check_sums, counts_of
from pipeline.validation.rules.traced import Traced, check_count, check_traced, traced_of
from pipeline.validation.warm_up import Tail
from quota.paced_schedule import BYTES_NS, HANDLER_TIME_NS

REQUEST: Final = "Request"
EVENTS_AT_ONCE: Final = 2**17
"""Number of events that are processed at a time; a column of this length takes one MiB."""
NAMES_MAX: Final = 1_000


@dataclass(slots=True)
class FileSetVerdict:
    """The result of judging one file set.

    Attributes:
        decisions: number of checked and unchecked records that were replayed.
        unjudged: number of records after a loss that cannot be judged, because a sample that lost something can still be live.
        replayed_exactly: number of records that were recomputed with doubles in the proxy's order of additions.
        counts: sums of the rows by quota type, for comparison with the manifest.
        groups: the groups with decisions, encoded by `bits_of`.
        throttle_windows: throttle window of each group that was throttled, for its long-run rate.
        paced_windows: those of groups that were paced throughout: bytes of `PACED_WINDOW`.
        buckets: first and last balance of each token bucket.
        observed: throttles that were decided without effect on a client.
        names: names of the groups that have findings, or may have findings when the whole run is judged.
        states: the settings of the proxy, by sequence number.
    """

    file_set: str
    decisions: int = 0
    unjudged: int = 0
    replayed_exactly: int = 0
    findings: Findings = field(default_factory=Findings)
    counts: dict[str, TypeCount] = field(default_factory=dict)
    groups: bytes = b""
    throttle_windows: dict[int, ThrottleWindow] = field(default_factory=dict)
    paced_windows: bytes = b""
    buckets: dict[int, BucketEnds] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    names: dict[int, str] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Groups that measure with the same parameters."""

    quota_type: str
    sensor: Sensor


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a file set contains besides its samples."""

    file_set: FileSet
    resumed: Resumptions
    noted: RecordedBounds
    settings_intervals: SettingsIntervals
    conditions: GroupConditions
    traced: Traced | None
    begins_run: bool


def judge_file_set(
    file_set: FileSet, before: Sequence[FileSet], *, losses: Losses | None = None, tail: Tail | None = None
) -> FileSetVerdict:
    """Replay the decisions of one file set.

    Args:
        file_set: the file set to judge.
        before: earlier file sets of the same run, in order. Only those that the warm-up needs are read.
        losses: the losses of the run up to and with this file set; None: they are found in `before`.
        tail: the last rows of the file set that was judged before, which are replaced by those of this one; None: all are read.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    verdict = FileSetVerdict(file_set.manifest.file_set)
    settings = file_set.manifest.settings
    of_rows = _columns_of(settings)
    samples = file_set.read("samples", columns=[*of_rows, *REMOTE_SUM_COLUMNS] if SHARED in settings else of_rows)
    kinds = file_set.made_of("dim_group", kinds_of)
    differ = False
    if len(samples):
        own = samples.select(of_rows)
        table = pa.concat_tables([warm_up(file_set, before, own, kinds, tail), own])
        if tail is not None:
            tail.keep(file_set, own, _span_ms(kinds))
        conditions, traced = GroupConditions(file_set, paced=PACED in settings), traced_of(file_set)
        asked = _Asked(
            file_set,
            resumptions(file_set, losses or Losses.of([*before, file_set]), table),
            file_set.made_of("dim_bound", RecordedBounds),
            SettingsIntervals(file_set),
            conditions,
            traced,
            begins_run=file_set.manifest.previous is None,
        )
        in_order = [_judge_kind(kind, refs if len(kinds) > 1 else None, table, asked, verdict) for kind, refs in kinds.items()]
        differ = in_order == [len(table)]
        verdict.counts = counts_of(samples, [(kind.quota_type, refs) for kind, refs in kinds.items()])
        verdict.groups = bits_of(samples.column("group_ref").to_numpy())
        if traced is not None:
            check_count(traced, pc.sum(samples.column("n")).as_py(), file_set, verdict.findings)
    if SHARED in settings:
        check_described(file_set, _skipped_groups(file_set), np.concatenate([np.zeros(0, np.int64), *kinds.values()]))
    _judge_buckets(file_set, verdict)
    check_whole(file_set, samples, verdict, differ=differ)
    return verdict


def _skipped_groups(file_set: FileSet) -> Ints:
    """Return the group number of each row about usage of other processes that was skipped."""
    events = file_set.read("events", columns=["group_ref", "kind"])
    found: Ints = events.filter(pc.equal(events.column("kind"), SKIPPED)).column("group_ref").to_numpy()
    return found


def _columns_of(settings: Mapping[str, object]) -> list[str]:
    """Return the columns of `samples` that are replayed. Usage of other processes moves the schedules of paced groups."""
    of_schedules = (LEAD, REMOTE_POSITIONS) if SHARED in settings else (LEAD,)
    return [*COLUMNS, *of_schedules] if PACED in settings else COLUMNS


def check_whole(file_set: FileSet, samples: pa.Table, verdict: FileSetVerdict, *, differ: bool) -> None:
    """Check what concerns a file set as a whole, when its decisions have been judged, and name its groups of interest.

    Args:
        file_set, samples: the file set and its rows of `samples`.
        verdict: its verdict, which is completed.
        differ: the first and last numbers of all samples are known to differ from each other.
    """
    events = file_set.read("events", columns=["seq", "kind", "ts_ms"])
    check_sequence(samples, events, file_set.read("gaps"), file_set.manifest, verdict.findings, differ=differ)
    check_times(samples, events, file_set.manifest, verdict.findings)
    check_sums(verdict.counts, file_set.manifest, verdict.findings)
    if len(samples) or MUTATION in verdict.counts:
        check_states(file_set, verdict.findings)
    verdict.states = states_of(file_set, verdict.findings)
    check_shares(file_set, samples, verdict.findings)
    verdict.names = names_of(file_set, _of_interest(verdict))


def _judge_kind(kind: GroupKind, refs: Ints | None, table: pa.Table, asked: _Asked, verdict: FileSetVerdict) -> int:
    """Judge the groups of a kind. Return the number of rows for which all sequence numbers are known to differ."""
    order = NumberOrder(shared=SHARED in asked.file_set.manifest.settings)
    try:
        parts = unpack_in_parts(table, refs, EVENTS_AT_ONCE)
    except ValueError as error:
        raise BadInputError(f"{asked.file_set.manifest.file_set}: {error}; meter at level packed (the default) or trace") from error
    for rows in parts:
        own = rows.first_seq >= asked.file_set.manifest.first_seq
        if own.any():
            _judge_rows(kind, rows, own, asked, order, verdict)
    return order.check(verdict.findings)


def _judge_rows(kind: GroupKind, rows: Rows, own: Flags, asked: _Asked, order: NumberOrder, verdict: FileSetVerdict) -> None:
    judged = own & ~asked.resumed.unknown(rows, kind.sensor)
    findings = verdict.findings
    whole = check_samples(rows, kind.sensor, judged, findings)
    if not whole.all():
        return
    burst_ms = int(asked.file_set.manifest.settings.get(PACED, 0))
    if rows.paced.any():
        unit_ns = HANDLER_TIME_NS if kind.sensor.is_request_time else BYTES_NS
        check_schedules(rows, burst_ms, unit_ns, judged & rows.paced, asked.begins_run, findings)
    if SHARED not in asked.file_set.manifest.settings:  # with shared usage, the rate is one of all workers' groups together
        throttled = throttle_windows(rows, kind.sensor, judged, asked.conditions, burst_ms=burst_ms)
        verdict.throttle_windows.update(throttled.windows)
        verdict.paced_windows += throttled.paced.tobytes()
    decided = decide(rows, kind.sensor)
    check_decisions(rows, decided, kind.sensor, judged, findings)
    order.add(rows, judged)
    if asked.traced is not None:
        check_traced(asked.traced, rows, decided, own, judged, findings)
    check_bounds(rows, judged, asked.noted, findings)
    verdict.observed += check_applied(rows, judged, asked.settings_intervals, findings)
    verdict.decisions += _total(rows.count, judged)
    verdict.unjudged += int(rows.count[own & ~judged].sum())
    verdict.replayed_exactly += decided.replayed_exactly


def _judge_buckets(file_set: FileSet, verdict: FileSetVerdict) -> None:
    judged = judge_buckets(file_set, verdict.findings)
    if judged is None:
        return
    verdict.decisions += judged.decisions
    verdict.unjudged += judged.unjudged
    verdict.counts[MUTATION] = judged.count
    verdict.groups = united((verdict.groups, bits_of(judged.groups)))
    verdict.buckets = judged.ends
    verdict.observed += judged.observed
    verdict.throttle_windows.update(judged.throttle_windows)


def _total(numbers: Ints, where: Flags) -> int:
    """Return the sum over the chosen rows. They are nearly all rows, so the others are subtracted from the total."""
    return int(numbers.sum()) - int(numbers.take(np.flatnonzero(~where)).sum())


def _of_interest(verdict: FileSetVerdict) -> list[int]:
    """Return the groups that have findings, or may have findings when the whole run is judged."""
    refs = [*verdict.findings.first, *fastest(verdict.throttle_windows, paced_windows_in(verdict.paced_windows)), *verdict.buckets]
    return list(dict.fromkeys(refs))[:NAMES_MAX]


def names_of(file_set: FileSet, refs: Sequence[int]) -> dict[int, str]:
    """Return the display names of groups, by group number."""
    if not refs:
        return {}
    columns = ["group_ref", "quota_type", "scope", "node", "listener", "tag_user", "tag_client_id", "tag_ip", "tags"]
    groups = file_set.read("dim_group", columns=columns)
    wanted = groups.filter(pc.is_in(groups.column("group_ref"), value_set=pa.array(refs, pa.int32())))
    return {row["group_ref"]: f"{group_name(row)} ({row['quota_type']})" for row in wanted.to_pylist()}


def kinds_of(file_set: FileSet) -> dict[GroupKind, Ints]:
    """Return the groups of each kind. There may be 100,000 groups, so groups are not processed one by one."""
    kinds: dict[GroupKind, Ints] = {}
    for group, refs in _alike(file_set, ["quota_type", "num_samples", "window_ms", "cap_ms"]):
        if group["num_samples"] < 1 or group["window_ms"] < 1:
            raise BadInputError(
                f"{file_set.manifest.file_set}: group {refs[0]} has {group['num_samples']} samples of {group['window_ms']} ms;"
                " the file is damaged"
            )
        cap_ms = NO_CAP if group["cap_ms"] is None else group["cap_ms"]
        sensor = Sensor(group["num_samples"], group["window_ms"], cap_ms, group["quota_type"] == REQUEST)
        kinds[GroupKind(group["quota_type"], sensor)] = refs.to_numpy().astype(np.int64)
    return kinds


def _alike(file_set: FileSet, columns: list[str]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield each combination of values of these columns with the groups that have it. Usually all groups have the same values."""
    alike = file_set.read_alike("dim_group", columns)
    if alike is not None:
        yield alike, file_set.read("dim_group", columns=["group_ref"]).column("group_ref")
        return
    groups = file_set.read("dim_group", columns=["group_ref", *columns]).group_by(columns).aggregate([("group_ref", "list")])
    for group, refs in zip(groups.select(columns).to_pylist(), groups.column("group_ref_list"), strict=True):
        yield group, refs.values


def warm_up(
    file_set: FileSet, before: Sequence[FileSet], samples: pa.Table, kinds: dict[GroupKind, Ints], tail: Tail | None = None
) -> pa.Table:
    """Return the rows of earlier file sets whose samples can be live, or continue, at this file set's first event."""
    check_described(file_set, samples.column("group_ref").to_numpy(), np.concatenate([np.zeros(0, np.int64), *kinds.values()]))
    after_ms = file_set.manifest.first_ts_ms - _span_ms(kinds)
    parts: list[pa.Table] = []
    for earlier in reversed(before):
        if earlier.manifest.last_ts_ms <= after_ms:
            break
        kept = None if tail is None else tail.rows_of(earlier, samples.schema, after_ms)
        parts.append(earlier.read("samples", columns=samples.schema.names, after_ms=after_ms) if kept is None else kept)
    return pa.concat_tables(reversed(parts)) if parts else samples.schema.empty_table()


def _span_ms(kinds: dict[GroupKind, Ints]) -> int:
    """Return for how long a sample can be live, or continue, after its last event."""
    return max((kind.sensor.num_samples + 1) * kind.sensor.window_ms for kind in kinds)
