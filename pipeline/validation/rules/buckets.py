"""Checks the token buckets of controller mutations: recomputes each step, and compares the balance with that of the step before."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import ASKED, CHARGED, EXCUSED_MS, MUTATION, OF_BUCKETS, REFUSED
from metering_format.manifest import TypeCount
from metering_format.places import SHARED
from pipeline.file_set import FileSet
from pipeline.replay.buckets import COLUMNS, KIND_NAMES, RecomputedSteps, Steps, steps_of, work_out
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Flags, Floats, Ints
from pipeline.validation.rules.application import Observed, SettingsIntervals, observed_of
from pipeline.validation.rules.bounds import RecordedBounds
from pipeline.validation.rules.described import check_described
from pipeline.validation.rules.long_run import GroupConditions, ThrottleWindow, bucket_throttle_windows


@dataclass(frozen=True, slots=True)
class BucketEnds:
    """The first and the last step of one bucket in one file set.

    Attributes:
        is_new: the bucket was unused before the first step.
        before, since_ms: balance before the first step, and the time that it refers to; None when it was not recorded.
        after, until_ms: balance after the last step, and the time of that step.
    """

    first_seq: int
    first_ts_ms: int
    is_new: bool
    before: float | None
    since_ms: int
    after: float | None
    until_ms: int


@dataclass(frozen=True, slots=True)
class JudgedBuckets:
    """The result of judging the buckets of one file set."""

    decisions: int
    unjudged: int
    count: TypeCount
    groups: Ints
    ends: dict[int, BucketEnds]
    throttle_windows: dict[int, ThrottleWindow]
    observed: Observed


def judge_buckets(file_set: FileSet, findings: Findings) -> JudgedBuckets | None:
    """Recompute every step of a file set; return None when it has no steps."""
    if not any(entry.table == "events" for entry in file_set.manifest.files):
        return None
    steps = _steps(file_set)
    if not len(steps):
        return None
    waits = steps.throttle_ms[steps.throttle_ms > 0]
    count = TypeCount(len(steps), int(steps.permits[steps.counts].sum()), len(waits), int(waits.sum()))
    recomputed, known = work_out(steps), steps.is_known
    _check_steps(steps, recomputed, known, findings)
    _check_order(steps, known, findings)
    _check_bounds(steps, file_set, findings)
    observed = _check_applied(steps, file_set, findings)
    groups, ends, rates = np.unique(steps.group_ref), {}, {}
    if SHARED not in file_set.manifest.settings:  # with shared usage, steps in other workers' files come between these
        _check_chain(steps, recomputed, known & _follows(steps, file_set), findings)
        ends, rates = _ends(steps, recomputed), bucket_throttle_windows(steps, GroupConditions(file_set))
    return JudgedBuckets(int(known.sum()), int((~known).sum()), count, groups, ends, rates, observed)


def _steps(file_set: FileSet) -> Steps:
    groups = file_set.read("dim_group", columns=["group_ref", "quota_type", "num_samples", "window_ms"])
    groups = groups.filter(pc.and_(pc.equal(groups.column("quota_type"), MUTATION), pc.greater_equal(groups.column("group_ref"), 0)))
    events = file_set.read("events", columns=COLUMNS)
    events = events.filter(pc.is_in(events.column("kind"), value_set=pa.array(OF_BUCKETS, pa.int8())))
    refs = groups.column("group_ref").to_numpy()
    check_described(file_set, events.column("group_ref").to_numpy(), refs)
    size = int(max(refs.max(initial=0), events.column("group_ref").to_numpy().max(initial=0))) + 1
    num_samples, window_ms = np.zeros(size, np.int64), np.zeros(size, np.int64)
    num_samples[refs], window_ms[refs] = groups.column("num_samples").to_numpy(), groups.column("window_ms").to_numpy()
    return steps_of(events, num_samples, window_ms)


def _check_steps(steps: Steps, recomputed: RecomputedSteps, known: Flags, findings: Findings) -> None:
    """Check which requests were let through, how many mutations they took, and how long they waited."""
    below = recomputed.balance < 0.0
    wrongly_passed = known & below & ((steps.kind == CHARGED) | (steps.kind == ASKED))
    wrongly_refused = known & ~below & (steps.kind == REFUSED)
    right = known & ~wrongly_passed & ~wrongly_refused
    recorded, due = steps.throttle_ms, recomputed.throttle_ms
    differs = right & (recorded != due)
    missed, spurious = differs & (recorded == 0) & (due > 0), differs & (recorded > 0) & (due == 0)
    _note(steps, recomputed, wrongly_passed, Kind.MISSED, "refused", "let through", findings)
    _note(steps, recomputed, wrongly_refused, Kind.SPURIOUS, "let through", "refused", findings)
    for wrong, kind in ((missed, Kind.MISSED), (spurious, Kind.SPURIOUS), (differs & ~missed & ~spurious, Kind.MATH)):
        _note(steps, recomputed, wrong, kind, due, recorded, findings, "wait, ms")
    _note(steps, recomputed, known & (steps.after != recomputed.after), Kind.MATH, recomputed.after, steps.after, findings, "balance left")


def _check_order(steps: Steps, known: Flags, findings: Findings) -> None:
    """Check that sequence numbers and times ascend together over all buckets, and that no balance has a later time than its step."""
    _note(steps, None, known & (steps.since_ms > steps.ts_ms), Kind.ORDER, steps.ts_ms, steps.since_ms, findings, "time of the balance")
    order = np.argsort(steps.seq, kind="stable")
    times = steps.ts_ms[order]
    back = np.zeros(len(steps), np.bool_)
    back[order[1:]] = times[1:] < times[:-1]
    _note(steps, None, back, Kind.ORDER, "no earlier than the step before it", steps.ts_ms, findings, "time of the step")


def _follows(steps: Steps, file_set: FileSet) -> Flags:
    """Return, for each step, whether the row before is the previous step of the same bucket, without a loss in between."""
    follows = np.zeros(len(steps), np.bool_)
    follows[1:] = steps.group_ref[1:] == steps.group_ref[:-1]
    if file_set.manifest.dropped_decisions:
        gaps = np.sort(file_set.read("gaps", columns=["from_seq"]).column("from_seq").to_numpy())
        lost = np.searchsorted(gaps, steps.seq)
        follows[1:] &= lost[1:] == lost[:-1]
    return follows


def _check_chain(steps: Steps, recomputed: RecomputedSteps, follows: Flags, findings: Findings) -> None:
    """Check that each step begins with the balance, and the time, that the step before left."""
    before = np.maximum(np.arange(len(steps)) - 1, 0)
    left, at_ms = steps.after[before], steps.ts_ms[before]
    _note(steps, recomputed, follows & (steps.before != left), Kind.MATH, left, steps.before, findings, "balance found")
    _note(steps, recomputed, follows & (steps.since_ms != at_ms), Kind.SEGMENT, at_ms, steps.since_ms, findings, "time of the balance, ms")


def _check_bounds(steps: Steps, file_set: FileSet, findings: Findings) -> None:
    in_force = RecordedBounds(file_set).at(steps.group_ref, steps.seq)
    _note(steps, None, in_force != steps.bound, Kind.BOUND, in_force, steps.bound, findings, "bound of the step")


def _check_applied(steps: Steps, file_set: FileSet, findings: Findings) -> Observed:
    """Check that waits were applied by the rules of the mode, and that no bucket was used where a switch is off.

    When the mode changed after a request was received, its tokens are taken when its response is received. In `observe` they always are.
    """
    settings_intervals = SettingsIntervals(file_set)
    if not settings_intervals:
        return Observed()
    may_enforce, may_observe = settings_intervals.possible(steps.group_ref, steps.seq)
    applied = steps.applied_ms
    is_enforced = may_enforce & ((applied == EXCUSED_MS) | (applied >= steps.throttle_ms))
    wrong = (steps.throttle_ms > 0) & (may_enforce | may_observe) & ~is_enforced & ~(may_observe & (applied <= 0))
    expected = np.where(may_enforce, steps.throttle_ms, 0)
    _note(steps, None, wrong, Kind.NOT_APPLIED, expected, applied, findings, "wait that was applied, ms")
    _, was_observed = settings_intervals.possible(steps.group_ref, steps.seq, earlier=1)
    off = ~may_enforce & ~may_observe & ~was_observed & ((steps.kind == CHARGED) | (steps.kind == REFUSED))
    _note(steps, None, off, Kind.NOT_APPLIED, "nothing, since a switch is off", "a step", findings)
    return observed_of(steps.throttle_ms, may_observe & ~may_enforce)


def _note(
    steps: Steps,
    recomputed: RecomputedSteps | None,
    wrong: Flags,
    kind: Kind,
    expected: str | Ints | Floats,
    recorded: str | Ints | Floats,
    findings: Findings,
    what: str = "step",
) -> None:
    where = np.flatnonzero(wrong)
    _, firsts, counts = np.unique(steps.group_ref[where], return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        at = int(where[index])
        due, found = (side if isinstance(side, str) else repr(side[at].item()) for side in (expected, recorded))
        name = f"{what} of a bucket, {KIND_NAMES.get(int(steps.kind[at]), '?')} {steps.permits[at]}"
        evidence = () if recomputed is None else _evidence(steps, recomputed, at)
        ref, seq, ts_ms = int(steps.group_ref[at]), int(steps.seq[at]), int(steps.ts_ms[at])
        findings.add(Finding(kind, ref, seq, ts_ms, due, found, name, evidence), int(number))


def _evidence(steps: Steps, recomputed: RecomputedSteps, at: int) -> tuple[str, ...]:
    since_ms = int(steps.ts_ms[at] - steps.since_ms[at])
    return (
        f"balance {float(steps.before[at])!r} at {steps.since_ms[at]} ms, {since_ms} ms later with {float(steps.bound[at])!r} a second and "
        f"at most {float(steps.burst[at])!r}: {float(recomputed.balance[at])!r}",
        f"asked for {steps.permits[at]}: {float(recomputed.after[at])!r} left, wait {recomputed.throttle_ms[at]} ms",
    )


def _ends(steps: Steps, recomputed: RecomputedSteps) -> dict[int, BucketEnds]:
    refs, firsts = np.unique(steps.group_ref, return_index=True)
    lasts = np.concatenate((firsts[1:], [len(steps)])) - 1
    is_new = (recomputed.balance == steps.burst) & (steps.before == 0.0)
    return {
        ref: BucketEnds(
            int(steps.seq[first]),
            int(steps.ts_ms[first]),
            bool(is_new[first]),
            _finite(steps.before[first]),
            int(steps.since_ms[first]),
            _finite(steps.after[last]),
            int(steps.ts_ms[last]),
        )
        for ref, first, last in zip(refs.tolist(), firsts.tolist(), lasts.tolist(), strict=True)
    }


def _finite(amount: float) -> float | None:
    return float(amount) if np.isfinite(amount) else None
