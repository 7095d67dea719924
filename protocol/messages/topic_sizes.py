"""Numbers of partitions: writes a Metadata request for some topics, and reads them from its response."""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.headers import response_header_len
from protocol.layout import Skip, layout_of, reading, skip_fields, skip_struct
from protocol.limits import LENGTH_BYTES
from protocol.messages.topic_changes import NO_ID, client_id_field
from protocol.primitives import INT16, INT32, Buffer, Reader, string, uvarint, with_length
from protocol.steps import Pace, Steps

FLEXIBLE_SINCE = 9
IDS_ANSWERED_SINCE = 10
ASKED_BY_ID_SINCE = 12
_ID_BYTES = 16
_LOWEST = 4
"""The first version with `allow_auto_topic_creation`, so that the request creates no topics."""


class TopicSize(NamedTuple):
    """A topic of a Metadata response; `topic_id` is NO_ID below v10, and when the broker does not know the topic."""

    name: str | None
    topic_id: bytes
    error_code: int
    partitions: int


def topic_sizes_request_in_steps(
    version: int, correlation_id: int, client_id: bytes | None, names: Sequence[str], topic_ids: Sequence[bytes], pace: Pace
) -> Steps[bytes]:
    """Return a Metadata request v4-v13 for these topics, written in steps; it creates no topics.

    Raises:
        ValueError: the version cannot express the request.
    """
    if version < (ASKED_BY_ID_SINCE if topic_ids else _LOWEST):
        raise ValueError(f"Metadata v{version} cannot ask for topics by {'id' if topic_ids else 'name alone'}")
    flexible = version >= FLEXIBLE_SINCE
    tags = b"\x00" * flexible
    topics: list[bytes] = []
    for name in names:
        topics.append(_topic(version, NO_ID, string(name, compact=flexible)) + tags)
        if pace.due():
            yield
    for topic_id in topic_ids:
        topics.append(_topic(version, topic_id, b"\x00") + tags)
        if pace.due():
            yield
    return _request(version, correlation_id, client_id, len(topics), b"".join(topics))


def all_topic_sizes_request(version: int, correlation_id: int, client_id: bytes | None) -> bytes:
    """Write a Metadata request v4-v13 for all topics."""
    return _request(version, correlation_id, client_id, -1, b"")


def _request(version: int, correlation_id: int, client_id: bytes | None, count: int, topics: bytes) -> bytes:
    flexible = version >= FLEXIBLE_SINCE
    tags = b"\x00" * flexible
    header = INT16.pack(ApiKey.METADATA) + INT16.pack(version) + INT32.pack(correlation_id) + client_id_field(client_id) + tags
    flags = 1 + (8 <= version <= 10) + (version >= 8)  # auto-creation, operations of the cluster, of topics: all off
    return with_length(header + (uvarint(count + 1) if flexible else INT32.pack(count)) + topics + bytes(flags) + tags)


def _topic(version: int, topic_id: bytes, name: bytes) -> bytes:
    return topic_id * (version >= IDS_ANSWERED_SINCE) + name


def _walkers(version: int) -> tuple[Skip, Skip]:
    """Compile the walkers over everything before the topics, and over one partition."""
    layout = layout_of(ApiKey.METADATA, "response", version)
    partition = next(field for field in layout.field("Topics").fields if field.name == "Partitions")
    return skip_fields(layout.before("Topics"), flexible=layout.flexible), skip_struct(partition.fields, flexible=layout.flexible)


_WALKERS = {api.version: _walkers(api.version) for api in API_VERSIONS.values() if api.key == ApiKey.METADATA}


def topic_sizes_in_steps(api: ApiVersion, frame: Buffer) -> Steps[tuple[TopicSize, ...]]:
    """Read the topics of a Metadata response, in steps.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    to_topics, past_partition = _WALKERS[api.version]
    with reading():
        at = to_topics(frame, LENGTH_BYTES + header_len)
    if at > len(frame):
        raise BadResponseError("the brokers go past the end of the frame")
    reader = Reader(frame, at, len(frame))
    pace = Pace()
    sizes: list[TopicSize] = []
    for _ in range(reader.length(compact=api.flexible)):
        sizes.append((yield from _read_topic(reader, frame, api, past_partition, pace)))
        if pace.due():
            yield
    return tuple(sizes)


def _read_topic(reader: Reader, frame: Buffer, api: ApiVersion, past_partition: Skip, pace: Pace) -> Steps[TopicSize]:
    error_code = reader.int16()
    name = reader.nullable_string(compact=api.flexible)
    topic_id = reader.raw(_ID_BYTES) if api.version >= IDS_ANSWERED_SINCE else NO_ID
    reader.skip(1 if api.version >= 1 else 0)  # is internal
    partitions = max(0, reader.length(compact=api.flexible))
    at = reader.at
    with reading():
        for _ in range(partitions):
            at = past_partition(frame, at)
            if pace.due():
                yield
    if at > len(frame):
        raise BadResponseError("the partitions go past the end of the frame")
    reader.at = at
    reader.skip(4 if api.version >= 8 else 0)  # authorized operations
    if api.flexible:
        reader.skip_tag_section()
    return TopicSize(name, topic_id, error_code, partitions)
