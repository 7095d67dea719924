"""The pages of /connections: connections by number, with long texts cut."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from proxy.telemetry.status import ConnectionInfo
from quota.names import kept_name


def shown_connection(info: ConnectionInfo) -> ConnectionInfo:
    """Return a connection with long texts cut; must be called only once."""
    return info._replace(principal=kept_name(info.principal), client_id=kept_name(info.client_id))


def connections_json(
    head: Mapping[str, Any], found: Iterable[ConnectionInfo], connections_max: int, workers: Mapping[int, int] | None = None
) -> bytes:
    """Return a page: `head`, and the first `connections_max` of `found`; in a thread.

    Args:
        found: as `shown_connection` returns them, in order, one more than is shown when there are more.
        workers: the worker of each connection, by its number; None: there are no workers.
    """
    infos = list(found)
    shown = infos[:connections_max]
    following = shown[-1].number if len(infos) > len(shown) else None
    # One by one: encoding thousands in one call would hold the interpreter lock.
    rows = ",".join([json.dumps(_row(info, workers)) for info in shown])
    return f'{json.dumps({**head, "next": following})[:-1]}, "connections": [{rows}]}}'.encode()


def _row(info: ConnectionInfo, workers: Mapping[int, int] | None) -> dict[str, Any]:
    return info._asdict() if workers is None else {**info._asdict(), "worker": workers[info.number]}
