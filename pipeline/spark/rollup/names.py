"""Names of clients and quota groups, with the numbers by which tasks add up."""

import contextlib
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.duckdb.database import Database, database
from pipeline.duckdb.names import number_names
from pipeline.duckdb.small_tables import NAMES
from pipeline.errors import BadInputError
from pipeline.manifest import listed_in, with_files
from pipeline.rollup.inputs import Input
from pipeline.rollup.tenants import TenantLine
from pipeline.spark.remote import check_there, listed_files, session_of_files
from pipeline.spark.rollup.pieces import as_bytes, from_bytes
from pipeline.spark.rollup.shares import Numbers
from sluice.object_store import is_url

WORKER_KEEPS: Final = 4


class Names(NamedTuple):
    """The tables of `pipeline.duckdb.names` as bytes, for tasks."""

    clients: bytes
    groups: bytes
    gold_clients: bytes
    gold_groups: bytes

    def put_of_runs(self, made: Database, runs: set[str]) -> None:
        """Make the tables `clients` and `groups` with the numbers of some runs."""
        for name, data in (("clients", self.clients), ("groups", self.groups)):
            rows = _kept(data)
            made.put(name, rows.filter(pc.is_in(rows.column("run_id"), pa.array(sorted(runs), pa.string()))))

    def put_gold(self, made: Database) -> None:
        """Make the tables `gold_clients` and `gold_groups`."""
        made.put("gold_clients", _kept(self.gold_clients))
        made.put("gold_groups", _kept(self.gold_groups))

    def principals(self, clients: Numbers) -> Numbers:
        """Return a number of the principal of each client, by its gold number."""
        return _principals(self.gold_clients)[clients]


@functools.lru_cache(WORKER_KEEPS)
def _kept(data: bytes) -> pa.Table:
    """Return a table of names. A worker process keeps it for its next tasks."""
    return from_bytes(data)


@functools.lru_cache(WORKER_KEEPS)
def _principals(data: bytes) -> Numbers:
    rows = from_bytes(data).select(["gold_client_number", "principal"]).combine_chunks()
    numbers = rows.column("gold_client_number").to_numpy()
    found = np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
    if len(rows):
        found[numbers] = pc.rank(rows.column("principal"), tiebreaker="dense").to_numpy()
    return found


def names_of(spark: Any, place: str, root: str, inputs: Sequence[Input], tenants: Sequence[TenantLine]) -> Names:
    """Read the names of some file sets. `place` is their directory as it was written, `root` as `inputs_at` returns it.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: a file is missing.
    """
    with contextlib.ExitStack() as opened:
        directory = _copied(spark, root, inputs, opened) if is_url(place) else Path(place)
        try:
            made = opened.enter_context(database())
            made.number_hours(item.hour for item in inputs)
            made.put_tenants(tenants)
            made.read(directory, inputs, NAMES)
            number_names(made)
            return Names(*(as_bytes(made.table(f"SELECT * FROM {name}")) for name in Names._fields))
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            line = str(error).splitlines()[0][:300]
            raise BadInputError(f"{place}: a file cannot be read ({line}); restore it") from error


def _copied(spark: Any, root: str, inputs: Sequence[Input], opened: contextlib.ExitStack) -> Path:
    """Return a directory of this machine that has the files with the names."""
    copy = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="sluice-names-")))
    named = [with_files(item.manifest, [entry for entry in item.manifest.files if entry.table in NAMES]) for item in inputs]
    wanted, found = listed_in(named), dict[str, int]()
    with session_of_files(spark, named) as own:
        for row in listed_files(own, root, wanted).toLocalIterator():
            write_copy(copy, row["path"], bytes(row["content"]))
            found[row["path"]] = len(row["content"])
    check_there(root, wanted, found)
    return copy


def write_copy(folder: Path, path: str, content: bytes) -> None:
    """Write a file of the metering directory at its path below a folder."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
