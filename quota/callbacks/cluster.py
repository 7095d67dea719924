"""The cluster as callbacks see it: node ids, partitions and their leaders; no addresses.

Source: Kafka 3.8 `Cluster`, `PartitionInfo`.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition; `leader` is a node id, or None while there is none."""

    topic: str
    partition: int
    leader: int | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """One view of the cluster. Equal views compare equal, so an unchanged view is not reported to callbacks."""

    cluster_id: str | None
    nodes: tuple[int, ...] = ()
    partitions: tuple[PartitionInfo, ...] = ()

    def partitions_led_by(self, node_id: int) -> Iterator[PartitionInfo]:
        """Yield the partitions that the broker leads."""
        return (partition for partition in self.partitions if partition.leader == node_id)
