"""Sources of the admin port's pages: this process, or workers that are queried."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from proxy.observe.rows.client_groups import ClientAnswer, ClientQuestion, SharedGroup, client_answer, group_answer
from proxy.observe.rows.connections_json import connections_json, shown_connection
from proxy.observe.rows.group_rows import Cursor, rows_page
from proxy.observe.rows.live_rows import LiveGroups, LiveQuery, LiveRows
from proxy.observe.rows.quotas_json import quotas_head, quotas_json
from proxy.observe.snapshot import Snapshot, control_snapshot, take_managers, take_snapshot
from proxy.observe.state import ControlState, ProxyState
from proxy.telemetry.status import ReadinessCheck


class HealthInputs(NamedTuple):
    """Values of the data path on which health and readiness depend."""

    internal_errors: int
    """Of all processes, since the start."""
    checks: Sequence[ReadinessCheck]
    """The checks of workers."""


@runtime_checkable
class PageSource(Protocol):
    """The source of the admin port's pages. Its methods are called on the event loop's thread; long work is done in another thread."""

    control: ControlState

    async def snapshot(self) -> Snapshot:
        """Return the data of /metrics."""

    async def figures(self) -> Snapshot:
        """Return the same without groups and clients."""

    async def live_groups(self, query: LiveQuery) -> LiveGroups:
        """Return groups for the live page."""

    async def group_answers(self, place: Cursor) -> list[SharedGroup]:
        """Return one group as each process has it; [] when none has it."""

    async def quotas_page(self, after: Cursor | None, limit: int) -> bytes:
        """Return a page of /quotas: at most `limit` groups after `after`."""

    async def connections_page(self, head: Mapping[str, Any], after: int, limit: int) -> bytes:
        """Return a page of /connections: `head`, the number of open ones, and at most `limit` with a number above `after`."""

    async def client_answers(self, question: ClientQuestion) -> list[ClientAnswer]:
        """Return the groups of a client in each process; [] when no worker answers."""

    async def health_inputs(self) -> HealthInputs:
        """Return the values for /healthz and /readyz."""


class OneProcess:
    """The `PageSource` of a single process: pages are made from live objects."""

    def __init__(self, state: ProxyState) -> None:
        self.control: ControlState = state
        self._state = state
        self._live_rows = LiveRows(state)

    async def snapshot(self) -> Snapshot:
        """Return the current state."""
        return take_snapshot(self._state)

    async def figures(self) -> Snapshot:
        """Return the current state without groups and clients."""
        return control_snapshot(self._state)._replace(traffic=self._state.traffic(), callback=self._state.callback())

    async def live_groups(self, query: LiveQuery) -> LiveGroups:
        """Return the groups of this process."""
        return await self._live_rows.groups(query)

    async def group_answers(self, place: Cursor) -> list[SharedGroup]:
        """Return the group, if there is one."""
        found = await group_answer(self._state, place)
        return [] if found is None else [found]

    async def quotas_page(self, after: Cursor | None, limit: int) -> bytes:
        """Return a page; groups are measured in a thread."""
        head, managers, now_ms = quotas_head(self._state), take_managers(self._state), self._state.now_ms()
        return await asyncio.to_thread(lambda: quotas_json(head, rows_page(managers, after, limit, now_ms)))

    async def connections_page(self, head: Mapping[str, Any], after: int, limit: int) -> bytes:
        """Return a page; connections are encoded in a thread."""
        whole = {"open": self._state.counters.connections_open, **head}
        return await asyncio.to_thread(
            lambda: connections_json(whole, map(shown_connection, self._state.connections(after, limit + 1)), limit)
        )

    async def client_answers(self, question: ClientQuestion) -> list[ClientAnswer]:
        """Return one answer."""
        return [await client_answer(self._state, question)]

    async def health_inputs(self) -> HealthInputs:
        """Return the errors of this process."""
        return HealthInputs(self._state.counters.internal_errors, ())


def source_of(shown: ProxyState | PageSource) -> PageSource:
    """Return the source of a single process, or `shown` when it is the source for several workers."""
    return shown if isinstance(shown, PageSource) else OneProcess(shown)
