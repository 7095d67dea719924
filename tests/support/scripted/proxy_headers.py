"""PROXY headers as load balancers send them, made without the code under test: `struct` and `inet_pton` only."""

import socket
import struct

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
LOCAL, PROXY = 0, 1
UNSPEC, STREAM, DATAGRAM = 0, 1, 2
AF_UNSPEC, AF_INET, AF_INET6, AF_UNIX = 0, 1, 2, 3


def v1_header(source: tuple[str, int], destination: tuple[str, int] = ("127.0.0.1", 9092)) -> bytes:
    """Return a header of version 1, a line of text."""
    kind = "TCP6" if ":" in source[0] else "TCP4"
    return f"PROXY {kind} {source[0]} {destination[0]} {source[1]} {destination[1]}\r\n".encode("ascii")


def v2_raw(command: int, family: int, transport: int, body: bytes, *, version: int = 2, length: int | None = None) -> bytes:
    """Return any header of version 2, including invalid ones; `length` None: the length of `body`."""
    head = struct.pack(">BBH", version << 4 | command, family << 4 | transport, len(body) if length is None else length)
    return SIGNATURE + head + body


def v2_header(source: tuple[str, int], destination: tuple[str, int] = ("127.0.0.1", 9092), tlvs: bytes = b"") -> bytes:
    """Return the header of a forwarded connection."""
    family, number = (socket.AF_INET6, AF_INET6) if ":" in source[0] else (socket.AF_INET, AF_INET)
    addresses = socket.inet_pton(family, source[0]) + socket.inet_pton(family, destination[0])
    return v2_raw(PROXY, number, STREAM, addresses + struct.pack(">HH", source[1], destination[1]) + tlvs)


def v2_local() -> bytes:
    """Return the header of a connection of the balancer itself."""
    return v2_raw(LOCAL, AF_UNSPEC, UNSPEC, b"")


def tlv(kind: int, value: bytes) -> bytes:
    """Return a TLV, as balancers add them."""
    return struct.pack(">BH", kind, len(value)) + value
