"""Metadata (3): reads the cluster from a response, and writes requests."""

from struct import Struct
from typing import NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.headers import response_header_len
from protocol.layout import Skip, layout_of, reading, skip_struct
from protocol.limits import LENGTH_BYTES
from protocol.primitives import INT16, INT32, Buffer, IncompleteError, Reader, string, with_length
from protocol.steps import Pace, Steps, finished

FLEXIBLE_SINCE = 9
_REQUEST_VERSION_MAX = 13
_PARTITION_HEAD = Struct(">hii")  # error code, partition, leader


class Broker(NamedTuple):
    """A broker of the response."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    """A partition and its leader; -1 means none."""

    topic: str
    partition: int
    leader: int


class Topology(NamedTuple):
    """The cluster as in one Metadata response, with only the topics requested."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    partitions: tuple[Partition, ...]


def _partition_end(version: int) -> Skip:
    """Compile the walker from after a partition's leader to the end of the partition."""
    layout = layout_of(ApiKey.METADATA, "response", version)
    partition = next(field for field in layout.field("Topics").fields if field.name == "Partitions")
    names = [field.name for field in partition.fields]
    return skip_struct(partition.fields[names.index("LeaderId") + 1 :], flexible=layout.flexible)


_PARTITION_ENDS = {api.version: _partition_end(api.version) for api in API_VERSIONS.values() if api.key == ApiKey.METADATA}


def read_topology(api: ApiVersion, frame: Buffer) -> Topology:
    """Do what `topology_in_steps` does, in one call."""
    return finished(topology_in_steps(api, frame))


def topology_in_steps(api: ApiVersion, frame: Buffer) -> Steps[Topology]:
    """Read brokers, topics, partitions and leaders in steps. A topic that has only an id and no name is left out.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    reader = Reader(frame, LENGTH_BYTES + header_len, len(frame))
    version, compact = api.version, api.flexible
    reader.skip(4 if version >= 3 else 0)  # throttle time
    brokers = tuple(_read_broker(reader, version) for _ in range(reader.length(compact=compact)))
    cluster_id = reader.nullable_string(compact=compact) if version >= 2 else None
    controller_id = reader.int32() if version >= 1 else -1
    partitions: list[Partition] = []
    pace = Pace()
    for _ in range(reader.length(compact=compact)):
        yield from _read_topic(reader, frame, version, partitions, pace)
        if pace.due():
            yield
    return Topology(cluster_id, controller_id, brokers, tuple(partitions))


def find_brokers_end(api: ApiVersion, beginning: Buffer, frame_bytes: int) -> int | None:
    """Return the end of the brokers in the beginning of a frame; None when not all of them have arrived.

    Raises:
        BadResponseError: it does not match its version.
    """
    header_len = response_header_len(api, beginning, 0)
    if header_len is None:
        return None
    reader = Reader(beginning, LENGTH_BYTES + header_len, frame_bytes)
    version, compact = api.version, api.flexible
    try:
        reader.skip(4 if version >= 3 else 0)  # throttle time
        for _ in range(reader.length(compact=compact)):
            _read_broker(reader, version)
    except IncompleteError:
        return None
    return reader.at


def _read_broker(reader: Reader, version: int) -> Broker:
    compact = version >= FLEXIBLE_SINCE
    node_id, host, port = reader.int32(), reader.string(compact=compact), reader.int32()
    rack = reader.nullable_string(compact=compact) if version >= 1 else None
    if compact:
        reader.skip_tag_section()
    return Broker(node_id, host, port, rack)


def _read_topic(reader: Reader, frame: Buffer, version: int, partitions: list[Partition], pace: Pace) -> Steps[None]:
    compact = version >= FLEXIBLE_SINCE
    reader.int16()  # error code
    name = reader.nullable_string(compact=compact)
    reader.skip((16 if version >= 10 else 0) + (1 if version >= 1 else 0))  # topic id, is internal
    count = reader.length(compact=compact)
    reader.at = yield from _read_partitions(frame, reader.at, count, name, version, partitions, pace)
    reader.skip(4 if version >= 8 else 0)  # authorized operations
    if compact:
        reader.skip_tag_section()


def _read_partitions(
    frame: Buffer, at: int, count: int, topic: str | None, version: int, partitions: list[Partition], pace: Pace
) -> Steps[int]:
    walk_to_end = _PARTITION_ENDS[version]
    with reading():
        for _ in range(count):
            _, partition, leader = _PARTITION_HEAD.unpack_from(frame, at)
            at = walk_to_end(frame, at + _PARTITION_HEAD.size)
            if topic is not None:
                partitions.append(Partition(topic, partition, leader))
            if pace.due():
                yield
    if at > len(frame):
        raise BadResponseError("the partitions go past the end of the frame")
    return at


def metadata_request(version: int, correlation_id: int, client_id: str, *, all_topics: bool) -> bytes:
    """Write a Metadata request v0-v13 for all topics or for none (from v1 on).

    It creates no topic, and from v8 on requests no authorized operations.

    Raises:
        ValueError: the version cannot express the request.
    """
    if not 0 <= version <= _REQUEST_VERSION_MAX or (version == 0 and not all_topics):
        raise ValueError(f"no Metadata request v{version} for {'all topics' if all_topics else 'no topic'}")
    flexible = version >= FLEXIBLE_SINCE
    header = INT16.pack(ApiKey.METADATA) + INT16.pack(version) + INT32.pack(correlation_id) + string(client_id, compact=False)
    flags = (version >= 4) + (8 <= version <= 10) + (version >= 8)  # auto-creation, operations of the cluster, of topics: all off
    tags = b"\x00" * flexible
    return with_length(header + tags + _topics(version, all_topics=all_topics) + bytes(flags) + tags)


def _topics(version: int, *, all_topics: bool) -> bytes:
    """Write the array of topics: null means all, empty means none; in v0 empty means all."""
    if version >= FLEXIBLE_SINCE:
        return b"\x00" if all_topics else b"\x01"
    return INT32.pack(-1 if all_topics and version > 0 else 0)
