"""A worker's answers to the process with the admin port."""

from __future__ import annotations

import asyncio
import secrets

from proxy.observe.rows.client_groups import ClientQuestion, client_answer, group_answer
from proxy.observe.rows.connections_json import shown_connection
from proxy.observe.rows.group_rows import rows_page
from proxy.observe.rows.live_rows import LiveQuery, LiveRows
from proxy.observe.snapshot import take_managers
from proxy.observe.state import DataState
from proxy.observe.workers.messages import (
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
)
from proxy.observe.workers.packing import pack, unpack
from proxy.observe.workers.report import ReportParts, chunks
from proxy.telemetry.loop_lag import LoopLag


class WorkerAnswers:
    """Answers on the event loop of one worker; long work is done in a thread."""

    def __init__(self, state: DataState, lag: LoopLag) -> None:
        self._state = state
        self._lag = lag
        self._live_rows = LiveRows(state)
        self._incarnation = secrets.randbits(63)  # distinguishes this process from earlier ones with its number

    async def answer(self, query: bytes) -> bytes:
        """Return the answer to a packed `Question`; changes no sensor."""
        state = self._state
        match unpack(query, Question).query:
            case MetricsQuery(is_brief):
                parts = ReportParts(state, self._lag, self._incarnation, is_brief=is_brief)
                return await asyncio.to_thread(lambda: pack(parts.report()))
            case QuotasQuery(after, limit):
                managers, now_ms = take_managers(state), state.now_ms()
                return await asyncio.to_thread(lambda: pack(rows_page(managers, after, limit, now_ms)))
            case ConnectionsQuery(after_number, limit):
                return await asyncio.to_thread(self._connections, after_number, limit)
            case ClientQuestion() as question:
                return pack(await client_answer(state, question))
            case LiveQuery() as live:
                rows, left_out = await self._live_rows.groups(live)
                return await asyncio.to_thread(lambda: pack(LiveAnswer(chunks(rows), left_out)))
            case GroupQuery(place):
                found = await group_answer(state, place)
                return pack(GroupAnswer([] if found is None else [found]))
            case HealthQuery():
                return pack(WorkerHealth(self._incarnation, state.counters.internal_errors))

    def _connections(self, after: int, limit: int) -> bytes:
        infos = list(map(shown_connection, self._state.connections(after, limit)))
        return pack(Connections(infos, self._state.counters.connections_open))
