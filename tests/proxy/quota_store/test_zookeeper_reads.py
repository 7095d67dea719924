"""ZooKeeper's multiRead requests and responses, byte for byte."""

import struct

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError

from proxy.quota_store.zookeeper.reads import PATH_BYTES_MAX, PATHS_MAX, MultiRead, Node, portions, read_children, read_nodes

LAST = b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"


def head(kind: int) -> bytes:
    return struct.pack(">i?i", kind, False, -1 if kind == -1 else 0)


def test_a_request() -> None:
    """A request has opcode 22, one operation per path without a watch, and an end marker."""
    request = read_nodes(["/a", "/\u00fc"])
    assert request.type == 22
    first, second = b"\x00\x00\x00\x02/a\x00", b"\x00\x00\x00\x03/\xc3\xbc\x00"
    get = b"\x00\x00\x00\x04\x00\xff\xff\xff\xff"
    assert request.serialize() == get + first + get + second + LAST
    assert read_children(["/a"]).serialize() == b"\x00\x00\x00\x08\x00\xff\xff\xff\xff" + first + LAST


def test_an_answer() -> None:
    """A response gives nodes, names of children, and an error for each path that failed."""
    stat = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 0, 2, 9, 8)
    data = head(4) + b"\x00\x00\x00\x02{}" + stat + head(4) + b"\xff\xff\xff\xff" + stat
    failed = head(-1) + struct.pack(">i", -101) + head(-1) + struct.pack(">i", -102)
    names = head(8) + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x01a" + b"\x00\x00\x00\x00" + head(8) + b"\x00\x00\x00\x00"
    found = MultiRead.deserialize(b"before" + data + failed + names + LAST, 6)
    assert found[:2] == [Node(b"{}", 5, 9), Node(b"", 5, 9)]
    assert [type(one) for one in found[2:4]] == [NoNodeError, NoAuthError]
    assert found[4:] == [["a", ""], []]


def test_an_answer_of_another_kind() -> None:
    """A response of another kind raises ValueError."""
    with pytest.raises(ValueError, match="kind 5"):
        MultiRead.deserialize(head(5) + LAST, 0)


def test_portions_fit_into_a_request() -> None:
    """Paths are split in order into portions of limited number and bytes."""
    paths = [f"/{number}" for number in range(2 * PATHS_MAX + 1)]
    assert [len(portion) for portion in portions(paths)] == [PATHS_MAX, PATHS_MAX, 1]
    long = ["/" + "x" * (PATH_BYTES_MAX // 4), "/a", "/b"]
    assert list(portions(long)) == [long[:1], long[1:]]
    assert list(portions([])) == []
