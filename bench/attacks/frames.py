"""Frames that a proxy has to walk: requests with as many items as allowed, and a broker's answers to them."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from bench.harness.frames import FETCH, PRODUCE, Template, fetch_request, produce_request, uvarint

FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS = 10, 19, 20, 32
ATTACKER = "attacker"
HOST_NAME = b"\x0abroker-01"


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack.

    Attributes:
        requests: sent in one piece, repeatedly, each time after the answers to the previous piece.
        answers: how many answers one piece gets; 0: the connection is expected to close.
        answer: the broker's answer to such a request; None: the request does not reach it, or gets the usual answer.
        addresses: number of addresses with one connection each, whose requests wait for one paced group; 0: one address without a quota.
    """

    name: str
    requests: bytes
    answers: int
    answer: Template | None
    addresses: int = 0


def flexible(key: int, version: int, body: bytes) -> bytes:
    """Return a request with header v2; its correlation id is 0."""
    head = struct.pack(">hhih", key, version, 0, len(ATTACKER)) + ATTACKER.encode() + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def answered(key: int, version: int, body: bytes) -> Template:
    """Return an answer with header v1."""
    return Template(key, version, struct.pack(">i", len(body) + 5) + bytes(4) + b"\0" + body, 0, b"")


def topics(count: int) -> bytes:
    """Return this many topic names, each with its length."""
    return b"".join(b"\x07" + f"{number:06d}".encode() for number in range(count))


def create_topics(count: int) -> bytes:
    """CreateTopics v7: one partition each."""
    entries = b"".join(b"\x07" + f"{number:06d}".encode() + struct.pack(">ih", 1, 1) + b"\1\1\0" for number in range(count))
    return flexible(CREATE_TOPICS, 7, uvarint(count + 1) + entries + struct.pack(">i", 1_000) + b"\0\0")


def created_topics(count: int) -> Template:
    """Return the answer to `create_topics`."""
    entries = b"".join(
        b"\x07" + f"{number:06d}".encode() + bytes(16) + b"\0\0\0" + struct.pack(">ih", 1, 1) + b"\1\0" for number in range(count)
    )
    return answered(CREATE_TOPICS, 7, bytes(4) + uvarint(count + 1) + entries + b"\0")


def placed_topic(assignments: int) -> bytes:
    """CreateTopics v7: one topic with assignments for all partitions."""
    entry = b"\x07placed" + struct.pack(">ih", -1, -1) + uvarint(assignments + 1)
    placed = b"".join(struct.pack(">i", number) + b"\2" + struct.pack(">i", 1) + b"\0" for number in range(assignments))
    return flexible(CREATE_TOPICS, 7, b"\2" + entry + placed + b"\1\0" + struct.pack(">i", 1_000) + b"\0\0")


def delete_topics(count: int) -> bytes:
    """DeleteTopics v6 by name."""
    entries = b"".join(b"\x07" + f"{number:06d}".encode() + bytes(16) + b"\0" for number in range(count))
    return flexible(DELETE_TOPICS, 6, uvarint(count + 1) + entries + struct.pack(">i", 1_000) + b"\0")


def deleted_topics(count: int) -> Template:
    """Return the answer to `delete_topics`: the topics do not exist."""
    entries = b"".join(b"\x07" + f"{number:06d}".encode() + bytes(16) + struct.pack(">h", 3) + b"\0\0" for number in range(count))
    return answered(DELETE_TOPICS, 6, bytes(4) + uvarint(count + 1) + entries + b"\0")


def find_coordinators(count: int) -> bytes:
    """FindCoordinator v4 for this many groups."""
    return flexible(FIND_COORDINATOR, 4, b"\0" + uvarint(count + 1) + topics(count) + b"\0")


def found_coordinators(count: int) -> Template:
    """Return the answer to `find_coordinators`: node 1 coordinates all groups."""
    rest = struct.pack(">i", 1) + HOST_NAME + struct.pack(">ih", 9_092, 0) + b"\0\0"
    entries = b"".join(b"\x07" + f"{number:06d}".encode() + rest for number in range(count))
    return answered(FIND_COORDINATOR, 4, bytes(4) + uvarint(count + 1) + entries + b"\0")


def described_configs(settings: int) -> Template:
    """A DescribeConfigs v4 answer about a broker, one of whose settings is an address."""
    entries = b"\2a\2b\0\5\0\1\2\0\0" * settings + b"\x0alisteners\2b\0\5\0\1\2\0\0"
    return answered(DESCRIBE_CONFIGS, 4, bytes(4) + b"\2\0\0\0\4\2" + b"1" + uvarint(settings + 2) + entries + b"\0\0")


def produced(partitions: int) -> Template:
    """A Produce v10 answer: every partition has an error with a message."""
    entry = struct.pack(">ihqqq", 0, 3, 0, 0, 0) + b"\1\2x\0"
    return answered(PRODUCE, 10, b"\2\2t" + uvarint(partitions + 1) + entry * partitions + b"\0" + bytes(4) + b"\0")


def fetched(partitions: int) -> Template:
    """A Fetch v16 answer: no partition has records, each has an aborted transaction."""
    entry = struct.pack(">ihqqq", 0, 0, 0, 0, 0) + b"\2" + bytes(16) + b"\0" + struct.pack(">i", -1) + b"\1\0"
    body = bytes(10) + b"\2" + bytes(16) + uvarint(partitions + 1) + entry * partitions + b"\0\0"
    return answered(FETCH, 16, body)


def many_heads(count: int) -> bytes:
    """Return this many different ApiVersions requests, with the largest allowed number of tagged fields in their headers."""
    tags = b"\x40" + b"".join(uvarint(1_000 + number) + b"\1x" for number in range(64))
    frames = []
    for number in range(count):
        client_id = f"{ATTACKER}-{number:05d}".encode()
        head = struct.pack(">hhih", 18, 3, 0, len(client_id)) + client_id + tags + b"\2b\0021\0"
        frames.append(struct.pack(">i", len(head)) + head)
    return b"".join(frames)


TOO_MANY, MOST = 260_000, 10_000

Maker = Callable[[], tuple[bytes, int, Template | None] | tuple[bytes, int, Template | None, int]]

MAKERS: dict[str, Maker] = {
    "create-topics-260000": lambda: (create_topics(TOO_MANY), 0, None),
    "create-topics-10000": lambda: (create_topics(MOST), 1, created_topics(MOST)),
    "placed-partitions-400000": lambda: (placed_topic(400_000), 0, None),
    "delete-topics-65000": lambda: (delete_topics(65_000), 0, None),
    "delete-topics-10000": lambda: (delete_topics(MOST), 1, deleted_topics(MOST)),
    "find-coordinator-100000": lambda: (find_coordinators(100_000), 1, found_coordinators(100_000)),
    "describe-configs-100000": lambda: (flexible(DESCRIBE_CONFIGS, 4, b"\2\4\0021\0\0\0\0\0"), 1, described_configs(100_000)),
    "produce-answer-100000": lambda: (produce_request(10, filler=100, client_id=ATTACKER).whole(), 1, produced(100_000)),
    "fetch-answer-100000": lambda: (fetch_request(16, client_id=ATTACKER).whole(), 1, fetched(100_000)),
    "new-heads-200": lambda: (many_heads(200), 200, None),
    "waiting-addresses-1000": lambda: (produce_request(13, filler=20_000, client_id=ATTACKER).whole(), 1, None, 1_000),
}


def attack(name: str) -> Attack:
    """Return the frames of an attack."""
    return Attack(name, *MAKERS[name]())
