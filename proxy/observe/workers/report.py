"""The report of a worker for /metrics.

Its size is limited: 10,000 clients with their counters, the 2,000 most urgent groups, and numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from proxy.observe.rows.group_rows import GroupRow, row_of
from proxy.observe.snapshot import GROUPS_MAX, GroupView, ManagerView, WorkerProcess, process_figures, take_managers
from proxy.observe.state import DataState
from proxy.observe.workers.counts import Counts, counts_of
from proxy.observe.workers.packing import pack
from proxy.telemetry.client_usage import Usage
from proxy.telemetry.counters import Counters
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import CallbackStatus, Traffic

GROUPS_REPORTED_MAX: Final = 2_000
"""The page shows some 330 groups: with this many, every group that is among the busiest of all workers together is reported."""
CHUNK: Final = 200
"""Number of clients or groups that are encoded in one call, in which no other thread runs."""

T = TypeVar("T")


class UsageRow(msgspec.Struct, frozen=True, array_like=True):
    """The usage of one user with one client-id: a `ShownUsage`."""

    user: str
    client_id: str
    produce_bytes: int
    fetch_bytes: int
    request_ns: float
    requests: list[int]
    throttled_requests: dict[tuple[str, str], int]
    throttle_ms: dict[tuple[str, str], int]
    exempt_bytes_total: int


class ManagerRow(msgspec.Struct, frozen=True, array_like=True):
    """A manager without its groups.

    Attributes:
        exempt_total, exempt_rate: exempt request time; None when the type has none.
        unreported: number of groups that are not in the report.
        unreported_rate: their usage, in units per second.
    """

    broker: str
    quota_type: str
    groups_overflowed: int
    exempt_total: float | None
    exempt_rate: float
    unreported: int
    unreported_rate: float


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The state of a worker.

    Attributes:
        incarnation: differs for each process.
        usages: chunks of `UsageRow`; the last row is that of all clients that are not counted separately.
        groups: chunks of `GroupRow`, without parents and verdicts.
        is_brief: whether managers, clients and groups were left out.
    """

    incarnation: int
    counts: Counts
    traffic: Traffic
    callback: CallbackStatus
    managers: list[ManagerRow]
    usages: list[bytes]
    groups: list[bytes]
    process: WorkerProcess
    is_brief: bool = False


class ReportParts:
    """The parts of a report, copied at once on the event loop's thread; another thread makes the report.

    Args:
        is_brief: leave managers, clients and groups out.
    """

    def __init__(self, state: DataState, lag: LoopLag, incarnation: int, *, is_brief: bool = False) -> None:
        self._incarnation = incarnation
        self._is_brief = is_brief
        self._now_ms = state.now_ms()
        self._managers = [] if is_brief else take_managers(state)
        self._usages = [] if is_brief else state.usages.snapshot()
        self._traffic = state.traffic()
        self._callback = state.callback()
        self._counters: Counters = state.counters
        self._lag = lag

    def report(self) -> Report:
        """Return the report, chunk by chunk, so that the event loop's thread can run."""
        reported = _most_urgent(self._managers, self._now_ms)
        by_manager: dict[int, set[int]] = {}
        for view in reported:
            by_manager.setdefault(id(view.manager), set()).add(id(view.group))
        return Report(
            self._incarnation,
            counts_of(self._counters),
            self._traffic,
            self._callback,
            [_manager_row(view, by_manager.get(id(view.manager), set()), self._now_ms) for view in self._managers],
            chunks(map(_usage_row, self._usages)),
            chunks(_bare_row(view, self._now_ms) for view in reported),
            process_figures(self._lag),
            self._is_brief,
        )


def _most_urgent(managers: Sequence[ManagerView], now_ms: int) -> list[GroupView]:
    """Return the groups as the page selects them: those being throttled first, then those with a bound, then by traffic."""
    views = islice((view for manager in managers for view in manager.views()), GROUPS_MAX)
    if sum(manager.group_count for manager in managers) <= GROUPS_REPORTED_MAX:
        return list(views)
    return heapq.nlargest(GROUPS_REPORTED_MAX, views, key=lambda view: view.urgency(now_ms))


def _manager_row(view: ManagerView, reported: set[int], now_ms: int) -> ManagerRow:
    rest = [group for group in view.groups if id(group) not in reported] if len(reported) < view.group_count else []
    is_timed = view.exempt_total is not None  # only request time is shown as a sum over all groups
    rest_rate = sum(group.rate(now_ms) for group in rest[:GROUPS_MAX]) if is_timed else 0.0
    return ManagerRow(
        view.broker, view.quota_type, view.groups_overflowed, view.exempt_total, view.exempt_rate(now_ms), len(rest), rest_rate
    )


def _bare_row(view: GroupView, now_ms: int) -> GroupRow:
    return msgspec.structs.replace(row_of(view, now_ms), parent=None, verdicts=())


def _usage_row(usage: Usage) -> UsageRow:
    return UsageRow(
        usage.user,
        usage.client_id,
        usage.produce_bytes,
        usage.fetch_bytes,
        usage.request_ns,
        usage.requests.copy(),
        usage.throttled_requests.copy(),
        usage.throttle_ms.copy(),
        usage.exempt_bytes_total,
    )


def chunks(rows: Iterable[T]) -> list[bytes]:
    """Return rows in packed lists of a few each, so that the event loop's thread can run between two of them."""
    return list(map(pack, _batches(iter(rows))))


def _batches(rows: Iterator[T]) -> Iterator[list[T]]:
    while batch := list(islice(rows, CHUNK)):
        yield batch
