"""The pages of a Sluice with several workers: each worker is queried, and the answers are merged."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

from proxy.observe.page_source import HealthInputs
from proxy.observe.rows.client_groups import ClientAnswer, ClientQuestion, SharedGroup
from proxy.observe.rows.connections_json import connections_json
from proxy.observe.rows.group_rows import Cursor, GroupRow, RowsPage, merged_row
from proxy.observe.rows.live_rows import LiveGroups, LiveQuery, LiveRow, merged_groups
from proxy.observe.rows.quotas_json import quotas_head, quotas_json
from proxy.observe.snapshot import Snapshot, control_snapshot
from proxy.observe.state import ControlState
from proxy.observe.workers.merged_reports import MergedReports
from proxy.observe.workers.messages import (
    Ask,
    Connections,
    ConnectionsQuery,
    GroupAnswer,
    GroupQuery,
    HealthQuery,
    LiveAnswer,
    MetricsQuery,
    Question,
    QuotasQuery,
    WorkerHealth,
    WorkerQuery,
)
from proxy.observe.workers.packing import pack, unpack
from proxy.telemetry.status import ConnectionInfo, ReadinessCheck

HEALTH_SHARED_MS: Final = 200

T = TypeVar("T")
Answers = Sequence[tuple[int, bytes | None]]


class ManyWorkers:
    """A `PageSource`.

    Args:
        control: the state that exists once; its counters are added to those of the workers.
        ask: queries all workers that should run, and waits a second at most.
    """

    def __init__(self, control: ControlState, ask: Ask) -> None:
        self.control = control
        self._ask = ask
        self._reports = MergedReports()
        self._worker_health: dict[int, WorkerHealth] = {}
        self._ended_errors = 0
        self._health: HealthInputs | None = None
        self._health_ms = 0
        self._one_query = asyncio.Lock()
        self._one_report = asyncio.Lock()

    async def snapshot(self) -> Snapshot:
        """Return the state of all processes; reports are merged in a thread."""
        async with self._one_report:
            answers = await self._answers(MetricsQuery())
            return await asyncio.to_thread(self._reports.snapshot, self._control_snapshot(answers), answers)

    async def figures(self) -> Snapshot:
        """Return the same without groups and clients."""
        async with self._one_report:
            answers = await self._answers(MetricsQuery(is_brief=True))
            return await asyncio.to_thread(self._reports.figures, self._control_snapshot(answers), answers)

    async def live_groups(self, query: LiveQuery) -> LiveGroups:
        """Return the groups of all workers, merged in a thread."""
        answers = await self._answers(query)
        return await asyncio.to_thread(lambda: merged_groups(map(_live_groups, _read(answers, LiveAnswer)), query.groups_max))

    async def group_answers(self, place: Cursor) -> list[SharedGroup]:
        """Return the group of each worker that has it."""
        answers = await self._answers(GroupQuery(place))
        return [group for _, groups in _read(answers, GroupAnswer) for group in groups.found]

    async def quotas_page(self, after: Cursor | None, limit: int) -> bytes:
        """Return a page; it names the workers that gave no answer."""
        answers = await self._answers(QuotasQuery(after, limit))
        head = quotas_head(self.control)
        return await asyncio.to_thread(
            lambda: quotas_json(head, merged_page([page for _, page in _read(answers, RowsPage)], limit), _unanswered(answers))
        )

    async def connections_page(self, head: Mapping[str, Any], after: int, limit: int) -> bytes:
        """Return a page; it names the workers that gave no answer, and the worker of each connection."""
        answers = await self._answers(ConnectionsQuery(after, limit + 1))
        return await asyncio.to_thread(self._connections_page, head, answers, limit)

    async def client_answers(self, question: ClientQuestion) -> list[ClientAnswer]:
        """Return the answers of the workers."""
        return [answer for _, answer in _read(await self._answers(question), ClientAnswer)]

    async def health_inputs(self) -> HealthInputs:
        """Return the errors of all workers, also of ended ones, and whether one serves; queried at most once in `HEALTH_SHARED_MS`.

        Every client that reaches the port may request it, so a flood of requests must not cause a flood of messages to workers.
        """
        async with self._one_query:
            now_ms = self.control.now_ms()
            if self._health is None or now_ms - self._health_ms >= HEALTH_SHARED_MS:
                self._health, self._health_ms = await self._query_health(), now_ms
            return self._health

    async def _query_health(self) -> HealthInputs:
        answers = await self._answers(HealthQuery())
        for number, health_inputs in _read(answers, WorkerHealth):
            before = self._worker_health.get(number)
            if before is not None and before.incarnation != health_inputs.incarnation:
                self._ended_errors += before.internal_errors
            self._worker_health[number] = health_inputs
        errors = self._ended_errors + sum(health_inputs.internal_errors for health_inputs in self._worker_health.values())
        return HealthInputs(self.control.counters.internal_errors + errors, [_check(answers)])

    def _control_snapshot(self, answers: Answers) -> Snapshot:
        control = control_snapshot(self.control)
        return control._replace(readiness=[*control.readiness, _check(answers)])

    async def _answers(self, query: WorkerQuery) -> Answers:
        return await self._ask(pack(Question(query)))

    def _connections_page(self, head: Mapping[str, Any], answers: Answers, limit: int) -> bytes:
        found = _read(answers, Connections)
        owners = {info.number: number for number, connections in found for info in connections.infos}
        infos = heapq.merge(*(connections.infos for _, connections in found), key=_number_of)
        count = self.control.counters.connections_open + sum(connections.open for _, connections in found)
        return connections_json({"open": count, **head, "workers_unanswered": _unanswered(answers)}, infos, limit, owners)


def merged_page(pages: Sequence[RowsPage], limit: int) -> RowsPage:
    """Return the first `limit` groups of all pages, equal ones as one row.

    No group before the last row is missing, since each page has `limit` groups or all. Among the groups that are left out, one that
    several workers have is counted for each.
    """
    in_order = heapq.merge(*(page.rows for page in pages), key=_place_of)
    rows = [merged_row(list(equal)) for _, equal in groupby(in_order, key=_place_of)]
    return RowsPage(rows[:limit], len(rows[limit:]) + sum(page.left_out for page in pages))


def _read(answers: Answers, kind: type[T]) -> list[tuple[int, T]]:
    return [(number, unpack(answer, kind)) for number, answer in answers if answer is not None]


def _unanswered(answers: Answers) -> list[int]:
    return [number for number, answer in answers if answer is None]


def _check(answers: Answers) -> ReadinessCheck:
    answered = len(answers) - len(_unanswered(answers))
    return ReadinessCheck("workers", answered > 0, f"{answered} of {len(answers)} answer")


def _place_of(row: GroupRow) -> Cursor:
    return row.place


def _live_groups(answer: tuple[int, LiveAnswer]) -> LiveGroups:
    _, groups = answer
    return LiveGroups([row for chunk in groups.chunks for row in unpack(chunk, list[LiveRow])], groups.left_out)


def _number_of(info: ConnectionInfo) -> int:
    return info.number
