"""Applies the rules over the members of a fleet, group by group, and adds up what each of them recorded and assumed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from metering_format.fleet_notes import ASSUMED, ASSUMED_NOW, LEFT_OUT
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey
from pipeline.replay.findings import Findings
from pipeline.replay.rows import Ints
from pipeline.validation.rules.fleet.balance import Others, check_balance
from pipeline.validation.rules.fleet.members import FleetFiles
from pipeline.validation.rules.fleet.rate import conditions_of, finding_of, judged, union_usage
from pipeline.validation.rules.fleet.totals import Totals, is_shared, sum_of, totals_of
from pipeline.validation.rules.workers.group_histories import GroupHistory
from pipeline.validation.shared_usage import Lags


@dataclass(slots=True)
class MemberUsage:
    """What one member recorded of the groups that the fleet shares, by quota type.

    Attributes:
        member: name of the member.
        units: what it used itself, with all its processes.
        assumed: what it recorded as usage of members that were not heard.
        assumed_now: sum of what its decisions assumed because it could not be known yet. Each time it was taken back.
        left_out: what the others reported and it did not record: it had assumed it, or it was too old.
    """

    member: str
    quota_type: str
    units: int = 0
    assumed: int = 0
    assumed_now: int = 0
    left_out: int = 0


@dataclass(slots=True)
class FleetUsage:
    """Figures about one fleet.

    Attributes:
        name: name of the fleet.
        groups: number of groups that members with files share.
        compared: number of decisions that were compared with the usage of the other members.
        lag_ms_p99, lag_ms_max: age in ms, at the decision, of the oldest usage of the other members that was not yet known.
        rates: number of groups whose rate over minutes was compared with their bound.
        highest_rate: the highest of these rates, over all members, divided by the bound; None: there is none.
        usage: what each member recorded.
        without_files: members that were heard, and of which there is no file.
        not_compared: why members were not compared, one line each.
    """

    name: str
    groups: int = 0
    compared: int = 0
    lag_ms_p99: int = 0
    lag_ms_max: int = 0
    rates: int = 0
    highest_rate: float | None = None
    usage: list[MemberUsage] = field(default_factory=list)
    without_files: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain data for JSON."""
        return asdict(self)


@dataclass(slots=True)
class FleetFigures:
    """Figures about some groups of a fleet; those of all groups add up to `FleetUsage`.

    Attributes:
        name, groups, rates, highest_rate, usage, without_files, not_compared: as in `FleetUsage`.
        lags: of all comparisons.
    """

    name: str
    groups: int = 0
    lags: Lags = field(default_factory=Lags)
    rates: int = 0
    highest_rate: float | None = None
    usage: list[MemberUsage] = field(default_factory=list)
    without_files: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)

    def merge(self, other: "FleetFigures") -> None:
        """Add the figures of other groups."""
        self.groups += other.groups
        self.lags.merge(other.lags)
        self.rates += other.rates
        rates = [one for one in (self.highest_rate, other.highest_rate) if one is not None]
        self.highest_rate = max(rates, default=None)
        known = {(one.member, one.quota_type): one for one in self.usage}
        for one in other.usage:
            its = known.setdefault((one.member, one.quota_type), MemberUsage(one.member, one.quota_type))
            its.units += one.units
            its.assumed += one.assumed
            its.assumed_now += one.assumed_now
            its.left_out += one.left_out
        self.usage = [known[place] for place in sorted(known)]

    def result(self) -> FleetUsage:
        """Return the figures of the fleet."""
        lags = (self.lags.number, self.lags.within(99), self.lags.within(100))
        return FleetUsage(self.name, self.groups, *lags, self.rates, self.highest_rate, self.usage, self.without_files, self.not_compared)


class FleetJudge:
    """Compares the members of one fleet, group by group.

    Args:
        files: the files of the fleet.
        file_sets: those of each run.
        findings: of each run; divergences are added.
        history_ms: usage of this time before a group gets a row is published together with it.
    """

    def __init__(
        self,
        files: FleetFiles,
        file_sets: Mapping[RunKey, Sequence[FileSet]],
        findings: Mapping[RunKey, Findings],
        history_ms: int,
    ) -> None:
        self._files = files
        self._file_sets = file_sets
        self._rates: list[float] = []
        self._findings = findings
        self._history_ms = history_ms
        self._lags = Lags()
        self._usage: dict[tuple[str, str], MemberUsage] = {}
        self._groups = 0
        self._reasons = {number: reason for number in files.incarnations if (reason := self._reason(number)) is not None}

    def _reason(self, number: str) -> str | None:
        """Return why an incarnation cannot be compared with the others; None: it can."""
        one = self._files.incarnations[number]
        who = one.member_of.member
        if one.heard is None:
            return f"{who}: the files of its supervisor, which name the members that it heard, are missing"
        if missing := sorted({name for other, name in one.heard.items() if other not in self._files.incarnations}):
            return f"{who}: it also has usage of members without files ({', '.join(missing)})"
        for other in one.heard:
            if not self._files.incarnations[other].is_whole:
                return f"{who}: files of {self._files.incarnations[other].member_of.member} have gaps"
        return None

    def judge(self, histories: Sequence[GroupHistory]) -> None:
        """Compare the histories of one group, of all members."""
        by_number: dict[str, list[GroupHistory]] = {}
        for history in histories:
            if is_shared(history) and history.run.segment in self._files.incarnations:
                by_number.setdefault(history.run.segment, []).append(history)
        self._groups += bool(by_number)
        totals = {number: self._totals(number, its) for number, its in by_number.items()}
        lag_ms = 0
        for number, its in by_number.items():
            self._count(its)
            heard = self._files.incarnations[number].heard
            if number in self._reasons or not heard:
                continue
            others = self._others(number, heard, totals)
            for history in its:
                if not history.run.losses:
                    offset_ms = self._files.offset_ms(history.run)
                    lags_ms = check_balance(history, others, offset_ms, self._findings[history.run.key])
                    self._lags.add(lags_ms)
                    lag_ms = max(lag_ms, int(lags_ms.max(initial=0)))
        self._check_rate([history for its in by_number.values() for history in its], lag_ms)

    def _check_rate(self, histories: Sequence[GroupHistory], lag_ms: int) -> None:
        """Compare the rate of all members with the bound; only complete files, while all members were heard, are judged."""
        if self._reasons or not histories or not all(one.is_whole for one in self._files.incarnations.values()):
            return
        usage = union_usage(histories, [self._files.offset_ms(history.run) for history in histories])
        if usage is None or self._is_unheard(usage.from_ms, usage.to_ms):
            return
        if usage.ratio > 1.0:  # else no ceiling is exceeded
            groups = [(history.group_ref, file_set) for history in histories for file_set in self._file_sets[history.run.key]]
            conditions = conditions_of(groups)
            if conditions is None:
                return
            run = judged(usage, conditions, lag_ms)
            if run.ratio > run.allowed:
                most = max((history for history in histories if history.is_own.any()), key=lambda one: int(one.value[one.is_own].sum()))
                names = " and ".join(sorted({history.run.member_of.member for history in histories if history.run.member_of}))
                self._findings[most.run.key].add(finding_of(most, usage, run, names))
        self._rates.append(usage.ratio)

    def _is_unheard(self, from_ms: int, to_ms: int) -> bool:
        """Whether a member was not heard in this time."""
        for number in self._files.incarnations:
            at_ms = self._unheard_ms(number)
            if ((at_ms >= from_ms) & (at_ms <= to_ms)).any():
                return True
        return False

    def _offset_ms(self, number: str) -> int:
        """Return what to add to a monotonic time of an incarnation, as `FleetFiles.offset_ms` does."""
        return self._files.offset_ms(self._files.incarnations[number].runs[0])

    def _unheard_ms(self, number: str) -> Ints:
        """Return the times at which an incarnation did not hear a member, with `_offset_ms` added."""
        return self._files.incarnations[number].unheard_ms + self._offset_ms(number)

    def _totals(self, number: str, histories: Sequence[GroupHistory]) -> Totals:
        return totals_of(histories, self._history_ms, self._offset_ms(number))

    def _others(self, number: str, heard: Mapping[str, str], totals: Mapping[str, Totals]) -> Others:
        incarnations = self._files.incarnations
        return Others(
            names=" and ".join(sorted(set(heard.values()))),
            totals=sum_of([totals[other] for other in heard if other in totals]),
            until_ms=min(incarnations[one].until_ms + self._offset_ms(one) for one in heard),
            begin_ms=incarnations[number].begin_ms + self._offset_ms(number),
            unheard_ms=np.sort(np.concatenate([self._unheard_ms(one) for one in (number, *heard)])),
        )

    def _count(self, histories: Sequence[GroupHistory]) -> None:
        member, identity = histories[0].run.member_of, histories[0].identity
        assert member is not None
        assert identity is not None
        assert identity[0] is not None
        usage = self._usage.setdefault((member.member, identity[0]), MemberUsage(member.member, identity[0]))
        usage.units += sum(int(history.value[history.is_own].sum()) for history in histories)
        usage.assumed += max(_noted(history, member.source(ASSUMED)) for history in histories)
        usage.left_out += max(_noted(history, member.source(LEFT_OUT)) for history in histories)
        for history in histories:
            its = history.value[history.source == member.source(ASSUMED_NOW)]
            usage.assumed_now += int(its[its > 0].sum())

    def result(self) -> FleetFigures:
        """Return the figures about the groups that were compared."""
        return FleetFigures(
            self._files.name,
            self._groups,
            self._lags,
            len(self._rates),
            max(self._rates, default=None),
            [self._usage[place] for place in sorted(self._usage)],
            sorted(set(self._files.without_files().values())),
            sorted(set(self._reasons.values())),
        )


def _noted(history: GroupHistory, source: str) -> int:
    """Return the sum of a note in one worker. All workers of a member have the same notes."""
    return sum(skip.amount for skip in history.skips if skip.source == source)
