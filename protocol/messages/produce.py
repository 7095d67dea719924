"""Produce responses (0): finds the throttle time, and whether node endpoints follow (KIP-951)."""

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, ThrottlePosition
from protocol.errors import BadResponseError
from protocol.headers import response_header_len
from protocol.layout import Skip, layout_of, read_uvarint, reading, skip_compact, skip_struct, skip_tags
from protocol.layout_steps import fields_in_steps
from protocol.limits import LENGTH_BYTES
from protocol.primitives import INT32_MAX, Buffer
from protocol.steps import Pace, Steps

FLEXIBLE_SINCE = 9
_TOPIC_ID_SINCE = 13
_TOPIC_ID_BYTES = 16
_NODE_ENDPOINTS_TAG = 0
_THROTTLE_BYTES = 4

# index, error code, base offset, log append time, log start offset
_PARTITION_FIXED_BYTES = 4 + 2 + 8 + 8 + 8
# the end of nearly every partition: no record errors, no error message, no tagged fields
_PARTITION_PLAIN_END = b"\x01\x00\x00"
# the same, with no tagged fields of the topic
_LAST_PARTITION_PLAIN_END = b"\x01\x00\x00\x00"
_PLAIN_PARTITION_BYTES = _PARTITION_FIXED_BYTES + len(_PARTITION_PLAIN_END)


def _partition_walker(version: int) -> Skip:
    layout = layout_of(ApiKey.PRODUCE, "response", version)
    topic = layout.field("Responses")
    partition = next(field for field in topic.fields if field.name == "PartitionResponses")
    return skip_struct(partition.fields, flexible=layout.flexible)


_PARTITION_WALKERS = {
    api.version: _partition_walker(api.version) for api in API_VERSIONS.values() if api.key == ApiKey.PRODUCE and api.flexible
}


_TO_THROTTLE_IN_STEPS = {
    api.version: fields_in_steps(layout.before("ThrottleTimeMs"), flexible=layout.flexible)
    for api in API_VERSIONS.values()
    if api.key == ApiKey.PRODUCE
    for layout in (layout_of(ApiKey.PRODUCE, "response", api.version),)
}


def walk_produce_in_steps(api: ApiVersion, data: Buffer) -> Steps[tuple[int | None, bool]]:
    """Walk the whole response of any version in `data`, in steps.

    Returns:
        As `walk_produce`, with None where the version has no throttle time.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    with reading():
        header_len = response_header_len(api, data, 0)
        if header_len is None:
            raise BadResponseError("the frame ends inside its header")
        throttle_at = yield from _TO_THROTTLE_IN_STEPS[api.version](data, LENGTH_BYTES + header_len, Pace())
        has_throttle = api.throttle is not ThrottlePosition.NONE
        after, endpoints = throttle_at + _THROTTLE_BYTES * has_throttle, False
        if api.flexible:
            after, endpoints = _read_tags(data, after)
    if after > len(data):
        raise BadResponseError("the message goes past the end of its frame")
    return throttle_at if has_throttle else None, endpoints


def walk_produce(api: ApiVersion, data: Buffer, at: int, end: int, walked_max: int = INT32_MAX) -> tuple[int, bool]:
    """Walk the whole response, v9 or newer, in `data` from `at` (its length) to `end`.

    Args:
        walked_max: most bytes to walk. A longer response counts as one with node endpoints, with -1 for the throttle time.

    Returns:
        Offset of throttle_time_ms from `at`, and whether node endpoints follow it.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    topic_end = end - 5 - _PARTITION_FIXED_BYTES - len(_LAST_PARTITION_PLAIN_END) - 1
    if topic_end > at and data[at + 8] == 0 and data[at + 9] == 2:
        # Most responses have one topic with one partition and nothing else: all offsets then follow from one length.
        name_bytes = _TOPIC_ID_BYTES if api.version >= _TOPIC_ID_SINCE else data[at + 10]
        if (
            0 < name_bytes < 0x80
            and at + 10 + name_bytes == topic_end
            and data[topic_end] == 2
            and data[end - 9 : end - 5] == _LAST_PARTITION_PLAIN_END
            and data[end - 1] == 0
        ):
            return end - 5 - at, False
    return _walk(api, data, at, end) if end - at <= walked_max else (-1, True)


def _walk(api: ApiVersion, data: Buffer, at: int, end: int) -> tuple[int, bool]:
    with reading():
        header_len = response_header_len(api, data, at)
        if header_len is None:
            raise BadResponseError("the frame ends inside its header")
        throttle_at = _skip_topics(api.version, data, at + LENGTH_BYTES + header_len)
        after, endpoints = _read_tags(data, throttle_at + _THROTTLE_BYTES)
    if after > end:
        raise BadResponseError("the message goes past the end of its frame")
    return throttle_at - at, endpoints


def _skip_topics(version: int, data: Buffer, at: int) -> int:
    walk_partition = _PARTITION_WALKERS[version]
    topics, at = read_uvarint(data, at)
    for _ in range(topics - 1):
        at = at + _TOPIC_ID_BYTES if version >= _TOPIC_ID_SINCE else skip_compact(data, at)
        partitions, at = read_uvarint(data, at)
        for _ in range(partitions - 1):
            plain_end = at + _PLAIN_PARTITION_BYTES
            plain = data[at + _PARTITION_FIXED_BYTES : plain_end] == _PARTITION_PLAIN_END
            at = plain_end if plain else walk_partition(data, at)
        at = skip_tags(data, at)
    return at


def _read_tags(data: Buffer, at: int) -> tuple[int, bool]:
    """Return the offset after the last tag section, and whether it holds node endpoints."""
    count, at = read_uvarint(data, at)
    endpoints = False
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        endpoints |= tag == _NODE_ENDPOINTS_TAG
        at += size
    return at, endpoints
