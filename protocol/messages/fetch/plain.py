"""Fetch v16+ responses of the usual shape: no aborted transactions, and no tagged fields before the last tag section."""

from protocol.layout import read_uvarint
from protocol.limits import RESPONSE_HEAD_BYTES
from protocol.primitives import Buffer

_TOPIC_ID_BYTES = 16
_FIXED_BEFORE_TOPICS = 4 + 2 + 4  # throttle time, error code, session id
_PARTITION_FIXED_BYTES = 4 + 2 + 8 + 8 + 8  # index, error code, high watermark, last stable offset, log start offset
_PREFERRED_REPLICA_BYTES = 4
_PLAIN_PARTITIONS_MAX = 2_048
_BODY_AT = RESPONSE_HEAD_BYTES + 1
_VARINT_SHIFT_MAX = 28

EMPTY_TAG_SECTIONS = bytes(3)
"""What follows the records of the only partition: the tag sections of the partition, of its topic and of the response."""
TOPICS_AT = _BODY_AT + _FIXED_BEFORE_TOPICS
"""Offset of the number of topics, from the first byte of the frame, as the next ones are for one topic with one partition."""
PARTITIONS_AT = TOPICS_AT + 1 + _TOPIC_ID_BYTES
"""Offset of the number of partitions."""
_ABORTED_AT = PARTITIONS_AT + 1 + _PARTITION_FIXED_BYTES
RECORDS_AT = _ABORTED_AT + 1 + _PREFERRED_REPLICA_BYTES
"""Offset of the length of the records."""


def plain_records_end(data: Buffer, at: int) -> int:
    """Return the offset behind the records of a Fetch v16+ that begins at `at`, if it has one plain partition; otherwise 0.

    For plain see `find_plain_tail`.
    """
    try:
        if data[at + RESPONSE_HEAD_BYTES] or data[at + TOPICS_AT] != 2 or data[at + PARTITIONS_AT] != 2 or data[at + _ABORTED_AT] > 1:
            return 0
        at += RECORDS_AT
        length, shift = data[at], 7  # the next lines are `read_uvarint`, whose call takes as long as half of this function
        if length >= 0x80:
            length &= 0x7F
            while shift <= _VARINT_SHIFT_MAX:
                at += 1
                byte = data[at]
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            else:
                return 0
    except IndexError:
        return 0
    return at + (length or 1)


def find_plain_tail(data: Buffer, at: int, end: int) -> int:
    """Return the offset of the last tag section of a Fetch v16+ whose body begins at `at`, or -1 when it is not plain.

    Plain is nearly every response: no aborted transactions, no tagged fields below the top level, counts below 127, and not so many
    partitions that the walk would take long.
    """
    at += _FIXED_BEFORE_TOPICS
    left = _PLAIN_PARTITIONS_MAX
    try:
        topics = data[at]
        at += 1
        while topics > 1:
            topics -= 1
            at += _TOPIC_ID_BYTES
            partitions = data[at]
            if (topics | partitions) & 0x80:
                return -1
            at += 1
            left -= partitions
            if left < 0:
                return -1
            while partitions > 1:
                partitions -= 1
                at += _PARTITION_FIXED_BYTES
                if data[at] > 1:
                    return -1
                at += 1 + _PREFERRED_REPLICA_BYTES
                length = data[at]
                if length < 0x80:
                    at += length or 1
                else:
                    length, at = read_uvarint(data, at)
                    at += length - 1 if length else 0
                if data[at]:
                    return -1
                at += 1
            if data[at]:
                return -1
            at += 1
    except IndexError:
        return -1
    return at if at < end else -1
