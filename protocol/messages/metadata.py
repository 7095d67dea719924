"""Metadata (3): what a response says about the cluster, and requests to ask for it."""

from typing import NamedTuple

from protocol.api_keys import ApiVersion


class Broker(NamedTuple):
    """A broker as the response names it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    """A partition and its leader; -1 is "none"."""

    topic: str
    partition: int
    leader: int


class Topology(NamedTuple):
    """The cluster as one Metadata response shows it: only the topics that were asked for."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    partitions: tuple[Partition, ...]


def read_topology(api: ApiVersion, frame: bytes) -> Topology:
    """Read brokers, topics, partitions and leaders.

    Raises:
        BadResponseError: the frame does not read as its version says.
    """
    raise NotImplementedError


def metadata_request(version: int, correlation_id: int, client_id: str, *, all_topics: bool) -> bytes:
    """Write a Metadata request (0-12) for all topics or for none; topics are never created by it from v4 on."""
    raise NotImplementedError
