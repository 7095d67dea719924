"""The pages of /connections: connections in the order of their numbers, in which they came, with long texts cut."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxy.telemetry.status import ConnectionInfo
from quota.names import kept_name


def connections_json(
    head: Mapping[str, Any], connections: Callable[[int, int], Sequence[ConnectionInfo]], after: int, connections_max: int
) -> bytes:
    """Return a page: `head`, and at most `connections_max` connections with a number above `after`; in a thread.

    Args:
        connections: returns those with a number above the first argument, at most as many as the second.
    """
    found = connections(after, connections_max + 1)
    shown = found[:connections_max]
    following = shown[-1].number if len(found) > len(shown) else None
    # One by one: encoding thousands in one call would keep the interpreter from the event loop for all of it.
    rows = ",".join([json.dumps(_shown(info)) for info in shown])
    return f'{json.dumps({**head, "next": following})[:-1]}, "connections": [{rows}]}}'.encode()


def _shown(info: ConnectionInfo) -> dict[str, Any]:
    return info._replace(principal=kept_name(info.principal), client_id=kept_name(info.client_id))._asdict()
