"""The tables in which connections are counted by address: per broker, for the bootstrap port, or over all of them."""

from typing import Final

BOOTSTRAP_TABLE: Final = -1
"""With one table per broker, connections to the bootstrap port have this table."""
CLUSTER_TABLE: Final = -2


def table_name(table: int) -> str:
    """Return the name of a table: a node id as text, "bootstrap" or "cluster"."""
    return {BOOTSTRAP_TABLE: "bootstrap", CLUSTER_TABLE: "cluster"}.get(table, str(table))
