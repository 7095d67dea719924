"""Replays the decisions of small file sets of a run together, since each step of the replay takes the same time for few and for many rows.

The verdicts are those of `judge_file_set`. They are only returned when nothing is found: the file sets are then judged one by one, so that
each divergence has its file set and its evidence.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.errors import BadInputError, IncompleteError
from pipeline.file_set import FileSet
from pipeline.replay.check import check_decisions, check_samples
from pipeline.replay.decisions import decide
from pipeline.replay.findings import Findings
from pipeline.replay.rows import COLUMNS, Flags, Ints, Rows
from pipeline.replay.unpacking import unpack
from pipeline.validation.file_set_verdict import FileSetVerdict, GroupKind, check_whole, kinds_of, warm_up
from pipeline.validation.rules.application import SettingsIntervals
from pipeline.validation.rules.bounds import RecordedBounds, check_bounds
from pipeline.validation.rules.described import check_described
from pipeline.validation.rules.gaps import Losses, Resumptions, beginning, resumptions
from pipeline.validation.rules.group_bits import bits_of
from pipeline.validation.rules.long_run import GroupConditions, throttle_windows
from pipeline.validation.rules.sequence import NumberOrder
from pipeline.validation.rules.sums import counts_of

_Kinds = dict[GroupKind, Ints]


class _Apart(Exception):
    """The file sets have to be judged one by one."""


class _Together:
    """File sets that are judged together.

    Attributes:
        first_seqs: number of the first decision of each file set.
        findings: what the replay finds.
    """

    def __init__(self, file_sets: Sequence[FileSet]) -> None:
        self.file_sets = file_sets
        self.first_seqs = np.array([file_set.manifest.first_seq for file_set in file_sets], np.int64)
        self.findings = Findings()
        self.verdicts = [FileSetVerdict(file_set.manifest.file_set) for file_set in file_sets]
        self.samples = [file_set.read("samples", columns=COLUMNS) for file_set in file_sets]
        self.kinds = [file_set.made_of("dim_group", kinds_of) for file_set in file_sets]
        self.bounds = [file_set.made_of("dim_bound", RecordedBounds) for file_set in file_sets]
        self.settings = [SettingsIntervals(file_set) for file_set in file_sets]
        self.conditions = [GroupConditions(file_set) for file_set in file_sets]

    def of_row(self, rows: Rows) -> Ints:
        """Return the position of each row's file set; -1 for rows of the warm-up."""
        return np.searchsorted(self.first_seqs, rows.first_seq, side="right") - 1


def judge_together(file_sets: Sequence[FileSet], before: Sequence[FileSet], losses: Losses) -> list[FileSetVerdict] | None:
    """Return the verdicts of some file sets, or None when they have to be judged one by one.

    Args:
        file_sets: file sets of one run that follow each other without a loss, at level packed. Their processes share no usage.
        before: the file sets before them.
        losses: the losses in `before`.
    """
    try:
        its = _Together(file_sets)
        _replay(its, before, losses)
        for file_set, samples, kinds, verdict in zip(file_sets, its.samples, its.kinds, its.verdicts, strict=True):
            verdict.counts = counts_of(samples, [(kind.quota_type, refs) for kind, refs in kinds.items()])
            verdict.groups = bits_of(samples.column("group_ref").to_numpy())
            check_whole(file_set, samples, verdict, differ=False)
            _refuse(verdict.findings)
    except (_Apart, BadInputError, IncompleteError, ValueError, LookupError):  # the first file set with an error has to be named
        return None
    return its.verdicts


def _refuse(findings: Findings) -> None:
    if findings.total:
        raise _Apart


def _replay(its: _Together, before: Sequence[FileSet], losses: Losses) -> None:
    kinds = _all_kinds(its)
    for samples in its.samples:
        if not len(samples):
            raise _Apart
    table = pa.concat_tables([warm_up(its.file_sets[0], before, its.samples[0], kinds), *its.samples]).combine_chunks()
    resumed = resumptions(its.file_sets[0], losses, table)
    if len(resumed.seqs) != len(beginning(its.file_sets[0]).seqs):
        raise _Apart
    for kind, refs in kinds.items():
        rows = unpack(table, refs if len(kinds) > 1 else None)
        if len(rows.n):
            _judge_rows(kind, rows, resumed, its)


def _all_kinds(its: _Together) -> _Kinds:
    """Return the groups of each kind in all file sets. Each file set has to describe its own groups, and a group has one kind."""
    for file_set, samples, kinds in zip(its.file_sets, its.samples, its.kinds, strict=True):
        described = np.concatenate([np.zeros(0, np.int64), *kinds.values()])
        check_described(file_set, samples.column("group_ref").to_numpy(), described)
    different = list({id(kinds): kinds for kinds in its.kinds}.values())
    found = {kind: np.unique(np.concatenate([kinds[kind] for kinds in different if kind in kinds])) for one in different for kind in one}
    if sum(len(refs) for refs in found.values()) != len(np.unique(np.concatenate(list(found.values())))):
        raise _Apart
    return found


def _judge_rows(kind: GroupKind, rows: Rows, resumed: Resumptions, its: _Together) -> None:
    of_row = its.of_row(rows)
    own = of_row >= 0
    judged = own & ~resumed.unknown(rows, kind.sensor)
    if not check_samples(rows, kind.sensor, judged, its.findings).all():
        raise _Apart
    decided = decide(rows, kind.sensor)
    check_decisions(rows, decided, kind.sensor, judged, its.findings)
    order = NumberOrder()
    order.add(rows, judged)
    order.check(its.findings)
    _refuse(its.findings)
    if decided.in_margin.any() or (rows.waits.applied_ms < rows.waits.throttle_ms).any():
        raise _Apart
    for at, verdict in enumerate(its.verdicts):
        _judge_own(kind, rows, judged & (of_row == at), its, at)
        verdict.decisions += int(rows.count[judged & (of_row == at)].sum())
        verdict.unjudged += int(rows.count[own & ~judged & (of_row == at)].sum())


def _judge_own(kind: GroupKind, rows: Rows, judged: Flags, its: _Together, at: int) -> None:
    """Apply the rules that depend on the tables of the file set at this position; `judged` are its rows."""
    if not its.settings[at] or not its.settings[at].enforce_throughout:
        raise _Apart
    check_bounds(rows, judged, its.bounds[at], its.findings)
    _refuse(its.findings)
    its.verdicts[at].throttle_windows.update(throttle_windows(rows, kind.sensor, judged, its.conditions[at]).windows)  # none is paced
