"""What each client did on each broker, window by window, from the usage rows of all file sets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.errors import IncompleteError
from pipeline.replay.rows import Floats, Ints
from pipeline.stem import Stem

COUNTS: Final = ("requests", "handler_ns", "produce_bytes", "fetch_bytes", "throttled_requests", "throttle_ms")

Place = tuple[str, str]
"""Proxy and broker."""
Client = tuple[str, str]
"""User and client-id."""


@dataclass(frozen=True, slots=True)
class Load:
    """One entry for each place, window and client that did anything in it; sorted by place and window.

    Attributes:
        place, client: positions in `places` and `clients`.
        window: number of the window since the epoch.
        load: what `measured` says, in that window.
        measured: "broker time", or "bytes" where no time was metered.
    """

    places: list[Place]
    clients: list[Client]
    window_ms: int
    measured: str
    place: Ints
    window: Ints
    client: Ints
    requests: Ints
    handler_ns: Ints
    throttled: Ints
    load: Floats


def read_load(directory: Path, runs: Iterable[Sequence[Stem]], window_ms: int) -> Load:
    """Add usage up by place, window and client.

    Raises:
        IncompleteError: no usage rows at all.
    """
    places: dict[Place, int] = {}
    clients: dict[Client, int] = {}
    parts = [_of_stem(stem, places, clients, window_ms) for stems in runs for stem in stems]
    table = pa.concat_tables([part for part in parts if part is not None]) if any(part is not None for part in parts) else None
    if table is None or not len(table):
        raise IncompleteError(f"{directory}: no usage rows in it, so no neighbours; let the proxy write at least one rotation")
    keys = ["place", "window", "client"]
    summed = table.group_by(keys).aggregate([(name, "sum") for name in COUNTS]).sort_by([(key, "ascending") for key in keys])
    column = {name: summed.column(name).to_numpy().astype(np.int64) for name in [*keys, *(f"{name}_sum" for name in COUNTS)]}
    has_time = bool(column["handler_ns_sum"].any())
    load = column["handler_ns_sum"] if has_time else column["produce_bytes_sum"] + column["fetch_bytes_sum"]
    return Load(
        list(places),
        list(clients),
        window_ms,
        "broker time" if has_time else "bytes",
        column["place"],
        column["window"],
        column["client"],
        column["requests_sum"],
        column["handler_ns_sum"],
        column["throttled_requests_sum"],
        load.astype(np.float64),
    )


def _of_stem(stem: Stem, places: dict[Place, int], clients: dict[Client, int], window_ms: int) -> pa.Table | None:
    usage = stem.read("usage", columns=["client_ref", "node", "second_ms", *COUNTS])
    if not len(usage):
        return None
    named = stem.read("dim_client", columns=["client_ref", "principal", "client_id"]).to_pylist()
    names = {row["client_ref"]: (row["principal"], row["client_id"]) for row in named}
    refs, at = np.unique(usage.column("client_ref").to_numpy(), return_inverse=True)
    nodes = usage.column("node").to_pylist()
    numbers = np.array([clients.setdefault(names.get(ref, ("?", "?")), len(clients)) for ref in refs.tolist()], np.int64)
    place_of = {node: places.setdefault((stem.manifest.proxy_id, node), len(places)) for node in dict.fromkeys(nodes)}
    return pa.table(
        {
            "place": np.array([place_of[node] for node in nodes], np.int64),
            "window": usage.column("second_ms").to_numpy() // window_ms,
            "client": numbers[at],
            **{name: usage.column(name) for name in COUNTS},
        }
    )
