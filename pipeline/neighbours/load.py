"""The load of each client on each broker by window, from the usage rows of all file sets."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError, IncompleteError
from pipeline.file_set import FileSet
from pipeline.file_sets import checked_runs
from pipeline.replay.rows import Floats, Ints
from pipeline.storage.paths import AnyPath, path_of_job, text_of
from pipeline.tasks import Job

KEYS: Final = ("place", "window", "client")
COUNTS: Final = ("requests", "handler_ns", "produce_bytes", "fetch_bytes", "throttled_requests", "throttle_ms")

Place = tuple[str, str]
"""Proxy id and broker."""
Client = tuple[str, str]
"""User and client-id."""


@dataclass(frozen=True, slots=True)
class Load:
    """One entry for each place, window and client with activity, sorted by place and window.

    Attributes:
        place, client: positions in `places` and `clients`.
        window: number of the window since the epoch.
        load: load in the window, in the unit of `measured`.
        measured: "broker time", or "bytes" when no time was metered.
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


class Work(msgspec.Struct, frozen=True):
    """One task: the usage rows of one file set, by windows of `window_ms`."""

    directory: str
    manifests: tuple[Manifest]
    window_ms: int


class Part(msgspec.Struct):
    """The result of one file set. `sums` is a table as an Arrow stream; its `place` and `client` are positions in the lists."""

    places: list[Place]
    clients: list[Client]
    sums: bytes


def plan_load(directory: AnyPath, window_ms: int) -> list[Work]:
    """Return the tasks.

    Raises:
        BadInputError: the directory cannot be used, or clients have no names.
        IncompleteError: a manifest or file is missing, or no usage was metered.
    """
    file_sets = [file_set for run in checked_runs(directory).values() for file_set in run]
    nameless = next((file_set.manifest.file_set for file_set in file_sets if file_set.manifest.names == "none"), None)
    if nameless is not None:
        raise BadInputError(f"{nameless}: names are none, so clients cannot be distinguished; meter with plain or keyed names")
    if not any(entry.table == "usage" and entry.rows for file_set in file_sets for entry in file_set.manifest.files):
        raise IncompleteError(f"{directory}: contains no usage rows; let the proxy write at least one rotation")
    return [Work(text_of(directory), (file_set.manifest,), window_ms) for file_set in file_sets]


def do(work: Work) -> Part:
    """Return the sums of the usage of one file set by place, window and client."""
    [manifest] = work.manifests
    file_set = FileSet(path_of_job(work.directory), manifest)
    usage = file_set.read("usage", columns=["client_ref", "node", "second_ms", *COUNTS])
    named = file_set.read("dim_client", columns=["client_ref", "principal", "client_id"]).to_pylist()
    names = {row["client_ref"]: (row["principal"], row["client_id"]) for row in named}
    places: dict[Place, int] = {}
    clients: dict[Client, int] = {}
    refs, at = np.unique(usage.column("client_ref").to_numpy(), return_inverse=True)
    nodes = usage.column("node").to_pylist()
    numbers = np.array([clients.setdefault(names.get(ref, ("?", "?")), len(clients)) for ref in refs.tolist()], np.int64)
    place_of = {node: places.setdefault((manifest.proxy_id, node), len(places)) for node in dict.fromkeys(nodes)}
    table = pa.table(
        {
            "place": np.array([place_of[node] for node in nodes], np.int64),
            "window": usage.column("second_ms").to_numpy() // work.window_ms,
            "client": numbers[at],
            **{name: usage.column(name).cast(pa.int64()) for name in COUNTS},
        }
    )
    return Part(list(places), list(clients), _written(_summed(table)))


JOB: Final = Job(do, Work, Part)


def load_of(parts: Iterable[Part], window_ms: int) -> Load:
    """Return the load from the parts of all file sets."""
    places: dict[Place, int] = {}
    clients: dict[Client, int] = {}
    summed = _summed(pa.concat_tables([_renumbered(part, places, clients) for part in parts]))
    summed = summed.sort_by([(key, "ascending") for key in KEYS])
    column = {name: summed.column(name).to_numpy().astype(np.int64) for name in (*KEYS, *COUNTS)}
    has_time = bool(column["handler_ns"].any())
    load = column["handler_ns"] if has_time else column["produce_bytes"] + column["fetch_bytes"]
    return Load(
        list(places),
        list(clients),
        window_ms,
        "broker time" if has_time else "bytes",
        column["place"],
        column["window"],
        column["client"],
        column["requests"],
        column["handler_ns"],
        column["throttled_requests"],
        load.astype(np.float64),
    )


def _renumbered(part: Part, places: dict[Place, int], clients: dict[Client, int]) -> pa.Table:
    """Return the sums of a part with positions in the lists of all parts."""
    table = pa.ipc.open_stream(part.sums).read_all()
    for name, own, known in (("place", part.places, places), ("client", part.clients, clients)):
        position = np.array([known.setdefault(it, len(known)) for it in own], np.int64)
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(position[table.column(name).to_numpy()]))
    return table


def _summed(table: pa.Table) -> pa.Table:
    sums = table.group_by(list(KEYS)).aggregate([(name, "sum") for name in COUNTS])
    return sums.select([*KEYS, *(f"{name}_sum" for name in COUNTS)]).rename_columns([*KEYS, *COUNTS])


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written
