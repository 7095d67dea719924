"""Converts the usage of a second to facts for the writer: the clients and their usage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.meter.batch import Fact
from proxy.meter.usage import UsageCells, UsageRow
from proxy.metering.facts.names import Names


def usage_facts(usage: UsageCells, names: Names, second_ms: int, node_id_of: Callable[[tuple[str, int]], int | None]) -> Iterator[Fact]:
    """Take the usage since the last call; yield the new clients, and one fact with all rows of the second.

    Args:
        node_id_of: returns a broker's node id for its address, None while unknown.
    """
    rows = usage.take()
    for client in usage.new_clients:
        common = {"client_ref": client.client_ref, "principal_type": client.principal_type, "name_form": names.form}
        yield {"client": {**common, "principal": names(client.principal) or "", "client_id": names(client.client_id) or ""}}
    usage.new_clients.clear()
    if rows:
        yield {"usage": {"second_ms": second_ms, "rows": [_placed(row, node_id_of) for row in rows]}}


def _placed(row: UsageRow, node_id_of: Callable[[tuple[str, int]], int | None]) -> tuple[object, ...]:
    client_ref, address, *rest = row
    node_id = node_id_of(address)
    return (client_ref, node_id, f"{address[0]}:{address[1]}" if node_id is None else str(node_id), *rest)
