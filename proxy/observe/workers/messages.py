"""The queries of the process with the admin port to workers, and the answers; `packing` encodes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from proxy.observe.rows.client_groups import ClientQuestion, SharedGroup
from proxy.observe.rows.group_rows import Cursor
from proxy.observe.rows.live_rows import LiveQuery
from proxy.telemetry.status import ConnectionInfo

Ask = Callable[[bytes], Awaitable[list[tuple[int, bytes | None]]]]
"""Queries all workers that should run; returns the number of each with its answer, within about a second. None: no answer."""


class MetricsQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for a `Report`; `is_brief`: without groups and clients."""

    is_brief: bool = False


class QuotasQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for a `RowsPage`: at most `limit` groups after `after`."""

    after: Cursor | None
    limit: int


class ConnectionsQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for `Connections` with a number above `after`, at most `limit`."""

    after: int
    limit: int


class HealthQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for a `WorkerHealth`."""


class GroupQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for the `GroupAnswer` about a place."""

    place: Cursor


WorkerQuery = MetricsQuery | QuotasQuery | ConnectionsQuery | ClientQuestion | HealthQuery | LiveQuery | GroupQuery


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A message with one query."""

    query: WorkerQuery


class Connections(msgspec.Struct, frozen=True, array_like=True):
    """Open connections of a worker in order, with long texts cut, and their number in all."""

    infos: list[ConnectionInfo]
    open: int


class LiveAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The groups of a worker for the live page: chunks of `LiveRow`, and the number of groups that are left out."""

    chunks: list[bytes]
    left_out: int


class GroupAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The group of a worker at the place of a query; none when it has none."""

    found: list[SharedGroup]


class WorkerHealth(msgspec.Struct, frozen=True, array_like=True):
    """Errors since the worker began; `incarnation` differs for each process."""

    incarnation: int
    internal_errors: int
