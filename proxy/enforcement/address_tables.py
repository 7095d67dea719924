"""In which table the connections of an address are counted: for each broker, for the bootstrap port, or over all of them."""

from typing import Final

BOOTSTRAP_TABLE: Final = -1
"""Addresses are counted for each broker; the bootstrap port stands for none and counts by itself."""
CLUSTER_TABLE: Final = -2


def table_name(table: int) -> str:
    """Return whose table it is: a node id as text, "bootstrap" or "cluster"."""
    return {BOOTSTRAP_TABLE: "bootstrap", CLUSTER_TABLE: "cluster"}.get(table, str(table))
