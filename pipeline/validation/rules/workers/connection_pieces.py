"""Divides the open connections that the usage rows of a file set count among the shares of the groups."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.file_set import FileSet
from pipeline.validation.rules.long_run import CLIENT_COLUMNS, EVERY, clients_of, open_connections


def connections_divided(file_set: FileSet, shares: Mapping[int, int], of: int) -> Iterator[tuple[str, list[pa.Table]]]:
    """Yield the names of two tables, and for each share the rows from which `GroupConditions` learns the connections of its groups.

    Args:
        file_set: the file set.
        shares: the share of each group.
        of: number of shares.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    cells = open_connections(file_set)
    if not len(cells):
        return
    clients = file_set.read("dim_client", columns=CLIENT_COLUMNS)
    known = cells.filter(pc.is_in(cells.column("client_ref"), value_set=clients.column("client_ref")))
    counted = known.column("client_ref").slice(0, 1).to_pylist()  # tells each share that connections were counted
    refs = [counted + own for own in _clients_of_shares(file_set, clients, shares, of)]
    for table, rows in (("usage", known), ("dim_client", clients)):
        yield table, [rows.filter(pc.is_in(rows.column("client_ref"), value_set=pa.array(own, pa.int32()))) for own in refs]


def _clients_of_shares(file_set: FileSet, clients: pa.Table, shares: Mapping[int, int], of: int) -> list[list[int]]:
    """Return the numbers of the clients whose connections groups of each share have."""
    wanted: dict[tuple[str, str], set[int]] = {}
    for group in file_set.read("dim_group", columns=["group_ref", "tag_user", "tag_client_id", "tags"]).to_pylist():
        named = clients_of(group)
        if named is not None:
            wanted.setdefault(named, set()).add(shares[group["group_ref"]])
    refs: list[list[int]] = [[] for _ in range(of)]
    for client in clients.to_pylist():
        user, client_id = client["principal"], client["client_id"]
        for share in {share for named in ((user, client_id), (user, EVERY), (EVERY, client_id)) for share in wanted.get(named, ())}:
            refs[share].append(client["client_ref"])
    return refs
