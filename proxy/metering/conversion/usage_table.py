"""Converts usage, collected each second, to rows of the table `usage`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from metering_format.manifest import UsageTotal
from metering_format.tables import USAGE
from proxy.meter.batch import Fact

COLUMNS: Final = (
    "client_ref",
    "node_id",
    "node",
    "listener",
    "api_class",
    "requests",
    "request_bytes",
    "response_bytes",
    "produce_bytes",
    "fetch_bytes",
    "handler_ns",
    "throttled_requests",
    "throttle_ms",
    "connections_opened",
    "connections_open",
    "waited_requests",
    "waited_ms",
)
"""Columns of a row in a segment, in order; rows of an earlier version end sooner. The second is stored once for all rows of that second."""


def usage_table(facts: Iterable[Fact], run: tuple[str, str]) -> pa.Table:
    """Return rows of USAGE."""
    seconds = list(facts)
    rows = [row for second in seconds for row in second["rows"]]
    common_columns = COLUMNS[: min((len(row) for row in rows), default=0)]
    columns: dict[str, Any] = {name: [None] * len(rows) for name in COLUMNS}
    columns |= {name: [row[at] for row in rows] for at, name in enumerate(common_columns)}
    columns["second_ms"] = [second["second_ms"] for second in seconds for _ in second["rows"]]
    columns["run_id"] = [run[0]] * len(rows)
    columns["proxy_id"] = [run[1]] * len(rows)
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in USAGE], schema=USAGE)


def usage_totals(facts: Iterable[Fact]) -> UsageTotal:
    """Return the usage totals of a manifest."""
    rows = [row for second in facts for row in second["rows"]]
    return UsageTotal(**{name: sum(row[COLUMNS.index(name)] for row in rows) for name in UsageTotal.__struct_fields__})
