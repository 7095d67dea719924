"""The queries of the process with the admin port to workers, and the answers; `packing` encodes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from proxy.observe.rows.client_groups import ClientQuestion
from proxy.observe.rows.group_rows import Cursor
from proxy.telemetry.status import ConnectionInfo

Ask = Callable[[bytes], Awaitable[list[tuple[int, bytes | None]]]]
"""Asks all workers that should run; returns the number of each with its answer, within about a second. None: it gave none."""


class MetricsQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks for a `Report`."""


class QuotasQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks for a `RowsPage`: at most `limit` groups behind `after`."""

    after: Cursor | None
    limit: int


class ConnectionsQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks for `Connections` with a number above `after`, at most `limit`."""

    after: int
    limit: int


class PulseQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks for a `WorkerPulse`."""


WorkerQuery = MetricsQuery | QuotasQuery | ConnectionsQuery | ClientQuestion | PulseQuery


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A message with one of the queries."""

    query: WorkerQuery


class Connections(msgspec.Struct, frozen=True, array_like=True):
    """Open connections of a worker in the order of their numbers, with long texts cut, and how many there are in all."""

    infos: list[ConnectionInfo]
    open: int


class WorkerPulse(msgspec.Struct, frozen=True, array_like=True):
    """Errors since the worker began; `incarnation` is another one in each process."""

    incarnation: int
    internal_errors: int
