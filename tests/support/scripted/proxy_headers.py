"""Headers of the PROXY protocol as balancers send them, made without the code under test: `struct` and `inet_pton` only."""

import socket
import struct

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
LOCAL, PROXY = 0, 1
UNSPEC, STREAM, DATAGRAM = 0, 1, 2
AF_UNSPEC, AF_INET, AF_INET6, AF_UNIX = 0, 1, 2, 3


def v1_header(source: tuple[str, int], destination: tuple[str, int] = ("127.0.0.1", 9092)) -> bytes:
    """The line of text."""
    kind = "TCP6" if ":" in source[0] else "TCP4"
    return f"PROXY {kind} {source[0]} {destination[0]} {source[1]} {destination[1]}\r\n".encode("ascii")


def v2_raw(command: int, family: int, transport: int, body: bytes, *, version: int = 2, length: int | None = None) -> bytes:
    """Any header of version 2, also one that should not be sent; `length` None: what `body` has."""
    head = struct.pack(">BBH", version << 4 | command, family << 4 | transport, len(body) if length is None else length)
    return SIGNATURE + head + body


def v2_header(source: tuple[str, int], destination: tuple[str, int] = ("127.0.0.1", 9092), tlvs: bytes = b"") -> bytes:
    """A connection that the balancer hands on."""
    family, number = (socket.AF_INET6, AF_INET6) if ":" in source[0] else (socket.AF_INET, AF_INET)
    addresses = socket.inet_pton(family, source[0]) + socket.inet_pton(family, destination[0])
    return v2_raw(PROXY, number, STREAM, addresses + struct.pack(">HH", source[1], destination[1]) + tlvs)


def v2_local() -> bytes:
    """The balancer asks for itself."""
    return v2_raw(LOCAL, AF_UNSPEC, UNSPEC, b"")


def tlv(kind: int, value: bytes) -> bytes:
    """One of the things that balancers like to add."""
    return struct.pack(">BH", kind, len(value)) + value
