"""Merges the reports of workers into one snapshot. Totals never decrease: the counts of a worker that ended are kept.

| Figure | Merged value |
|---|---|
| counters, histograms, traffic, calls of the callback, stalls | the sum, with those of workers that ended |
| numbers of present things | the sum over live workers; a few are the largest or smallest one, see `counts.MERGE_MODES` |
| groups | groups with equal tags are one, as `merged_row` merges them |
| clients | equal clients are one, with their counters added; the first 10,000 are counted one by one, those after them together |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from proxy.observe.rows.group_rows import TYPES, Cursor, GroupRow, merged_row
from proxy.observe.snapshot import Snapshot, WorkerFigures
from proxy.observe.workers.counts import Counts, counters_of, counts_of, rows_for, sum_of
from proxy.observe.workers.merged_usages import MergedUsages
from proxy.observe.workers.packing import unpack
from proxy.observe.workers.report import Report
from proxy.telemetry.status import CallbackStatus, Traffic

NO_TRAFFIC: Final = Traffic(0, 0, 0, 0, 0)
NO_CALLBACK: Final = CallbackStatus(None, 0, None)


class MergedManager:
    """The managers of one quota type at one broker, in all workers: a `ShownManager`."""

    def __init__(self, broker: str, quota_type: str) -> None:
        self.broker = broker
        self.quota_type = quota_type
        self.groups_overflowed = 0
        self.exempt_total: float | None = None
        self.rows: list[GroupRow] = []
        self._exempt_rate = 0.0
        self._unreported = 0
        self._unreported_rate = 0.0

    @property
    def group_count(self) -> int:
        """Number of groups; one that several workers leave out is counted for each of them."""
        return len(self.rows) + self._unreported

    def exempt_rate(self, _now_ms: int) -> float:
        """Return the exempt request time, in percent."""
        return self._exempt_rate

    def views(self) -> Iterator[GroupRow]:
        """Return the groups in the reports."""
        return iter(self.rows)

    def rest_rate(self) -> float:
        """Return the usage of the others."""
        return self._unreported_rate

    def add_totals(self, groups_overflowed: int, exempt_total: float | None) -> None:
        """Add the totals of a manager since its start."""
        self.groups_overflowed += groups_overflowed
        if exempt_total is not None:
            self.exempt_total = (self.exempt_total or 0.0) + exempt_total

    def add_now(self, exempt_rate: float, unreported: int, unreported_rate: float) -> None:
        """Add the current values of a manager."""
        self._exempt_rate += exempt_rate
        self._unreported += unreported
        self._unreported_rate += unreported_rate


class MergedReports:
    """Keeps the last report of each worker; used by one thread at a time."""

    def __init__(self) -> None:
        self._last: dict[int, Report] = {}
        self._usages = MergedUsages()
        self._apis: dict[int, None] = {}
        self._ended_counts = Counts()
        self._ended_traffic = NO_TRAFFIC
        self._ended_callback = NO_CALLBACK
        self._ended_stalls = 0
        self._ended_managers: dict[tuple[str, str], tuple[int, float | None]] = {}

    def snapshot(self, control: Snapshot, answers: Sequence[tuple[int, bytes | None]]) -> Snapshot:
        """Return `control` with the reports of all workers, the last ones for those that gave no answer.

        Args:
            control: of the process with the admin port, as `control_snapshot` returns it.
            answers: of every worker that should run; workers that are not among them have ended.
        """
        figures = self.figures(control, answers)
        reports = list(self._last.values())
        return figures._replace(managers=self._managers(reports), usages=self._usages.of(reports))

    def figures(self, control: Snapshot, answers: Sequence[tuple[int, bytes | None]]) -> Snapshot:
        """Return the same without groups and clients; the reports may be brief."""
        self._take(answers)
        reports = list(self._last.values())
        counts = sum_of([counts_of(control.counters), self._ended_counts, *(report.counts for report in reports)])
        rows_for(counts, self._apis)
        return control._replace(
            counters=counters_of(counts, self._apis),
            traffic=traffic_of([self._ended_traffic, *(report.traffic for report in reports)]),
            callback=callback_of([self._ended_callback, *(report.callback for report in reports)]),
            workers=[_figures(number, self._last.get(number), is_stale=answer is None) for number, answer in answers],
            worker_stalls=self._ended_stalls + sum(report.process.stalls for report in reports),
        )

    def _take(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        for number in self._last.keys() - {number for number, _ in answers}:
            self._end(self._last.pop(number))
        for number, answer in answers:
            if answer is None:
                continue
            report, before = unpack(answer, Report), self._last.get(number)
            if before is not None and before.incarnation != report.incarnation:
                self._end(before)
                before = None
            self._last[number] = _completed(report, before)

    def _end(self, report: Report) -> None:
        """Keep the totals of a worker that has ended."""
        self._ended_counts.add(report.counts, lasting_only=True)
        self._ended_traffic = traffic_of([self._ended_traffic, report.traffic])
        self._ended_callback = callback_of([self._ended_callback, report.callback])._replace(error=None, suspended=0)
        self._ended_stalls += report.process.stalls
        for row in report.managers:
            overflowed, exempt = self._ended_managers.get((row.broker, row.quota_type), (0, None))
            total = exempt if row.exempt_total is None else (exempt or 0.0) + row.exempt_total
            self._ended_managers[row.broker, row.quota_type] = (overflowed + row.groups_overflowed, total)
        self._usages.end(report)

    def _managers(self, reports: Iterable[Report]) -> list[MergedManager]:
        managers: dict[tuple[str, str], MergedManager] = {}

        def at(broker: str, quota_type: str) -> MergedManager:
            manager = managers.get((broker, quota_type))
            if manager is None:
                manager = managers[broker, quota_type] = MergedManager(broker, quota_type)
            return manager

        parts: dict[Cursor, list[GroupRow]] = {}
        for report in reports:
            for row in report.managers:
                manager = at(row.broker, row.quota_type)
                manager.add_totals(row.groups_overflowed, row.exempt_total)
                manager.add_now(row.exempt_rate, row.unreported, row.unreported_rate)
            for chunk in report.groups:
                for group in unpack(chunk, list[GroupRow]):
                    parts.setdefault(group.place, []).append(group)
        for (broker, quota_type), totals in self._ended_managers.items():
            at(broker, quota_type).add_totals(*totals)
        for place, rows in parts.items():
            at(place.broker, TYPES[place.type_at]).rows.append(merged_row(rows))
        return list(managers.values())


def _completed(report: Report, before: Report | None) -> Report:
    """Return a brief report with managers, clients and groups of the report before it."""
    if before is None or not report.is_brief:
        return report
    return msgspec.structs.replace(report, managers=before.managers, usages=before.usages, groups=before.groups)


def traffic_of(parts: Iterable[Traffic]) -> Traffic:
    """Return the sum of the traffic."""
    return Traffic(*map(sum, zip(*parts, strict=True)))


def callback_of(parts: Iterable[CallbackStatus]) -> CallbackStatus:
    """Return the merged state of the callback."""
    known = list(parts)
    return CallbackStatus(
        next((one.class_name for one in known if one.class_name is not None), None),
        sum(one.errors for one in known),
        next((one.error for one in known if one.error is not None), None),
        calls=sum(one.calls for one in known),
        call_ns_total=sum(one.call_ns_total for one in known),
        slow_calls=sum(one.slow_calls for one in known),
        suspended=sum(one.suspended for one in known),
        suspensions=sum(one.suspensions for one in known),
    )


def _figures(number: int, report: Report | None, *, is_stale: bool) -> WorkerFigures:
    if report is None:
        return WorkerFigures(number, is_stale, None, 0)
    return WorkerFigures(number, is_stale, report.process, int(report.counts.numbers["connections_open"][()]))
