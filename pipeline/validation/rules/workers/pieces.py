"""Divides a file set among the shares of the groups: for each share, what the comparison of runs reads of its groups, under the same paths.

So a task that compares a share gets neither the rows of the other shares nor columns that the comparison does not read.
"""

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metering_format.event_kinds import SKIPPED
from metering_format.fleet_notes import ASSUMED
from metering_format.tables import TABLES
from pipeline.errors import PipelineError
from pipeline.file_set import FileSet
from pipeline.replay.remote import columns_of
from pipeline.validation.rules.workers.connection_pieces import connections_divided
from pipeline.validation.rules.workers.group_histories import NAMED_BY, SKIPPED_COLUMNS, identities_of, member_of
from pipeline.validation.rules.workers.group_shares import OTHER_GROUPS, GroupShares, Identity, share_of_group

R = TypeVar("R")

_DESCRIBED: Final = ["group_ref", *NAMED_BY, "num_samples", "window_ms", "cap_ms", "first_seen_ms"]
_STATE: Final = ["ts_ms", "fleet", "mode", "switches"]


class Piece(NamedTuple):
    """The rows of a share in one file, as the content of a file with the same path."""

    share: int
    path: str
    content: bytes


def moved_groups(file_sets: Iterable[FileSet], of: int) -> list[dict[int, int]]:
    """Return, for each file set of a run, the groups that get another identity in a later one, and the share of that.

    Args:
        file_sets: the file sets in order; only `dim_group` is read.
        of: number of shares.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    identities: dict[int, Identity | None] = {}
    until: dict[int, int] = {}
    number = 0
    for at, file_set in enumerate(file_sets):
        own = identities_of(file_set, set())
        until |= {ref: at for ref, identity in own.items() if identities.get(ref, identity) != identity}
        identities |= own
        number += 1
    shares = {ref: share_of_group(ref, identities[ref], of) for ref in until}
    return [{ref: share for ref, share in shares.items() if at < until[ref]} for at in range(number)]


def pieces_of(file_set: FileSet, of: int, moved: Mapping[int, int]) -> Iterator[Piece]:
    """Yield the pieces of a file set whose manifest has the files that the comparison reads. A piece without rows is left out.

    A file that cannot be read is in all shares as it is. The comparison does not need each file, and names those it needs and cannot read.

    Args:
        file_set: the file set.
        of: number of shares.
        moved: its part of the result of `moved_groups`.

    Raises:
        BadInputError, IncompleteError: `dim_group` cannot be used.
    """
    groups = GroupShares.of_groups(identities_of(file_set, set()), of, moved)
    paths = {entry.table: entry.path for entry in reversed(file_set.manifest.files)}
    for table, shares in _divided(file_set, groups, paths):
        if shares is None:
            content = (file_set.directory / paths[table]).read_bytes()
            yield from (Piece(share, paths[table], content) for share in range(groups.of))
            continue
        for share, rows in enumerate(shares):
            if len(rows):
                yield Piece(share, paths[table], _content_of(rows))


def _divided(file_set: FileSet, groups: GroupShares, tables: Container[str]) -> Iterator[tuple[str, Iterable[pa.Table] | None]]:
    """Yield the name of each table, and the rows of each share; None: it cannot be read."""
    for table, divide in _DIVIDE.items():
        if table in tables:
            yield table, _or_none(functools.partial(divide, file_set, groups))
    if "usage" in tables:
        connections = _or_none(functools.partial(_connections, file_set, groups))
        yield from ((table, None) for table in ("usage", "dim_client") if table in tables) if connections is None else connections


def _or_none(read: Callable[[], R]) -> R | None:
    """Return the result of a function that reads files; None: one cannot be read."""
    try:
        return read()
    except PipelineError:
        return None


def _connections(file_set: FileSet, groups: GroupShares) -> list[tuple[str, list[pa.Table]]]:
    return list(connections_divided(file_set, dict(zip(groups.refs.tolist(), groups.shares.tolist(), strict=True)), groups.of))


def _rows_of_shares(groups: GroupShares, table: pa.Table) -> Iterator[pa.Table]:
    share_of_rows = groups.of_rows(table)
    return (table.take(np.flatnonzero(share_of_rows == share)) for share in range(groups.of))


def _samples(file_set: FileSet, groups: GroupShares) -> Iterable[pa.Table]:
    return _rows_of_shares(groups, file_set.read("samples", columns=columns_of(file_set)))


def _described(file_set: FileSet, groups: GroupShares) -> Iterable[pa.Table]:
    return _rows_of_shares(groups, file_set.read("dim_group", columns=_DESCRIBED))


def _skipped(file_set: FileSet, groups: GroupShares) -> Iterable[pa.Table]:
    """Return the totals that were skipped. All shares get the times at which a member of a fleet assumed usage in any group."""
    events = file_set.read("events", columns=SKIPPED_COLUMNS)
    skipped = events.filter(pc.equal(events.column("kind"), SKIPPED))
    member = member_of(file_set.manifest)
    if member is None:
        return _rows_of_shares(groups, skipped)
    notes = skipped.filter(pc.equal(skipped.column("source"), member.source(ASSUMED)))
    _, first = np.unique(notes.column("ts_ms").to_numpy(), return_index=True)
    others = pa.array(np.full(len(first), OTHER_GROUPS), pa.int32())
    notes = notes.take(first).set_column(0, TABLES["events"].field("group_ref"), others)
    return (pa.concat_tables([rows, notes]) for rows in _rows_of_shares(groups, skipped))


def _states(file_set: FileSet, groups: GroupShares) -> Iterable[pa.Table]:
    return [file_set.read("states", columns=_STATE)] * groups.of


def _gaps(file_set: FileSet, groups: GroupShares) -> Iterable[pa.Table]:
    return [file_set.read("gaps", columns=["n"])] * groups.of


_DIVIDE: Final[Mapping[str, Callable[[FileSet, GroupShares], Iterable[pa.Table]]]] = {
    "samples": _samples,
    "events": _skipped,
    "dim_group": _described,
    "states": _states,
    "gaps": _gaps,
}
"""For each table, a function that returns the rows of each share."""


def _content_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", use_dictionary=False, write_statistics=False)  # it is read once, and whole
    content: bytes = sink.getvalue().to_pybytes()
    return content
