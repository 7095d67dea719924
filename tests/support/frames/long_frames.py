"""Requests and answers with any number of items."""

import struct

from protocol.api_keys import ApiKey
from tests.support.frames.kafka_frames import api_of, request, response
from tests.support.frames.layout_codec import uvarint


def create_of(body: bytes) -> bytes:
    """Return a CreateTopics v7 request with these bytes as its array of topics."""
    return request(api_of(ApiKey.CREATE_TOPICS, 7), body + struct.pack(">i", 30_000) + b"\0\0", 7)


def grow_of(body: bytes) -> bytes:
    """Return a CreatePartitions v3 request with these bytes as its array of topics."""
    return request(api_of(ApiKey.CREATE_PARTITIONS, 3), body + struct.pack(">i", 30_000) + b"\0\0", 7)


PLACED = struct.pack(">i", 0) + b"\x02" + struct.pack(">i", 1) + b"\0"
TOPIC = b"\x02t" + struct.pack(">ih", -1, -1)


def coordinators(correlation_id: int, keys: int) -> bytes:
    """Return a FindCoordinator v4 answer for this many keys."""
    entry = b"\2k" + struct.pack(">i", 1) + b"\5host" + struct.pack(">ih", 9_092, 0) + b"\0\0"
    return response(api_of(ApiKey.FIND_COORDINATOR, 4), struct.pack(">i", 0) + uvarint(keys + 1) + entry * keys + b"\0", correlation_id)


def configs(correlation_id: int, settings: int) -> bytes:
    """Return a DescribeConfigs v4 answer about a broker with this many settings, one of which is an address."""
    plain_one = b"\2a\2b\0\5\0\1\2\0\0"
    entries = plain_one * (settings - 1) + b"\x0alisteners\2b\0\5\0\1\2\0\0"
    body = struct.pack(">i", 0) + b"\2\0\0\0\4\2" + b"1" + uvarint(settings + 1) + entries + b"\0\0"
    return response(api_of(ApiKey.DESCRIBE_CONFIGS, 4), body, correlation_id)
