"""The header of the PROXY protocol, versions 1 and 2, in which a load balancer names the client.

Only addresses are read: TLVs, and everything after UNKNOWN and LOCAL, are skipped. Source: HAProxy's
"The PROXY protocol, versions 1 & 2", sections 2.1 and 2.2.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from protocol.errors import ProxyHeaderError

V1_BYTES_MAX = 107
"""Longest header of version 1, with its CR LF. Source: the specification, which derives it from two IPv6 addresses."""
V2_BODY_BYTES_MAX = 4_096
"""Maximum length of the rest of a version 2 header: addresses and TLVs, which may include a client certificate."""

_V1_PREFIX = b"PROXY "
_V1_UNKNOWN = b"PROXY UNKNOWN"
_V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_HEAD_BYTES = 16  # signature, version and command, family and transport, length
_V2_ADDRESSES_MAX = 36  # two IPv6 addresses and two ports: bytes after them are not read
_LOCAL, _PROXY = 0x0, 0x1
_UNSPEC, _INET, _INET6, _UNIX = 0x0, 0x1, 0x2, 0x3
_STREAM = 0x1
_DATAGRAM = 0x2


class ProxyHeader(NamedTuple):
    """The content of a header."""

    source: tuple[str, int] | None
    """IP address and port of the client; None when the header names none, and the address of the socket applies."""
    local: bool
    """The load balancer itself is the client, for a health check."""


class ProxyHeaderReader:
    """Reads a header from the beginning of a stream, in pieces of any size, and not one byte more.

    Keeps at most 107 bytes; `header` is set when the header is complete.
    """

    __slots__ = ("_kept", "_skipped", "header")

    def __init__(self) -> None:
        self.header: ProxyHeader | None = None
        self._kept = bytearray()
        self._skipped = 0

    @property
    def begun(self) -> bool:
        """Whether any byte has arrived."""
        return bool(self._kept)

    def feed(self, data: bytes) -> int:
        """Consume the bytes of the header at the beginning of `data`; return how many there are.

        Raises:
            ProxyHeaderError: the bytes are not a header of either version, or not a valid one.
        """
        if self.header is not None or not data:
            return 0
        first = self._kept[0] if self._kept else data[0]
        return self._feed_v2(data) if first == _V2_SIGNATURE[0] else self._feed_v1(data)

    def _feed_v1(self, data: bytes) -> int:
        before = len(self._kept)
        self._kept += data[: V1_BYTES_MAX - before]
        _must_begin(self._kept, _V1_PREFIX)
        end = self._kept.find(b"\r\n")
        if end >= 0:
            self.header = _read_v1(bytes(self._kept[:end]))
            return end + 2 - before
        if len(self._kept) >= V1_BYTES_MAX:
            raise ProxyHeaderError(f"a version 1 header without an end in {V1_BYTES_MAX} bytes")
        return len(self._kept) - before

    def _feed_v2(self, data: bytes) -> int:
        taken = self._keep(data, _V2_HEAD_BYTES)
        _must_begin(self._kept, _V2_SIGNATURE)
        if len(self._kept) < _V2_HEAD_BYTES:
            return taken
        body_bytes = _check_v2_head(self._kept)
        kept_bytes = min(body_bytes, _V2_ADDRESSES_MAX)
        taken += self._keep(data[taken:], _V2_HEAD_BYTES + kept_bytes)
        if len(self._kept) < _V2_HEAD_BYTES + kept_bytes:
            return taken
        to_skip = min(body_bytes - kept_bytes - self._skipped, len(data) - taken)
        self._skipped += to_skip
        if self._skipped == body_bytes - kept_bytes:
            self.header = _read_v2(bytes(self._kept))
        return taken + to_skip

    def _keep(self, data: bytes, up_to: int) -> int:
        """Keep the bytes of `data` up to a total of `up_to`; return how many were kept."""
        missing = max(0, up_to - len(self._kept))
        self._kept += data[:missing]
        return min(missing, len(data))


def _must_begin(kept: bytearray, prefix: bytes) -> None:
    if not prefix.startswith(bytes(kept[: len(prefix)])):
        raise ProxyHeaderError("no PROXY header came first")


def _read_v1(line: bytes) -> ProxyHeader:
    """Read `PROXY TCP4 SOURCE DESTINATION PORT PORT`, without its CR LF."""
    if line == _V1_UNKNOWN or line.startswith(_V1_UNKNOWN + b" "):
        return ProxyHeader(None, local=False)
    fields = line.split(b" ")
    if len(fields) != 6 or fields[1] not in (b"TCP4", b"TCP6"):
        raise ProxyHeaderError("a version 1 header that is neither TCP4 nor TCP6 with two addresses and two ports, nor UNKNOWN")
    version = 4 if fields[1] == b"TCP4" else 6
    source, _ = (_text_address(text, version=version) for text in fields[2:4])
    port, _ = map(_text_port, fields[4:6])
    return ProxyHeader((_plain(source), port), local=False)


def _text_address(text: bytes, *, version: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        if b"%" in text:  # a zone index has a meaning on the load balancer only
            raise ValueError
        return ipaddress.IPv4Address(text.decode("ascii")) if version == 4 else ipaddress.IPv6Address(text.decode("ascii"))
    except ValueError:
        raise ProxyHeaderError(f"a version 1 header with an address that is not IPv{version}") from None


def _text_port(text: bytes) -> int:
    if not text.isdigit() or len(text) > 5 or (text[:1] == b"0" and text != b"0") or int(text) > 65_535:
        raise ProxyHeaderError("a version 1 header with a port that is no number from 0 to 65535")
    return int(text)


def _check_v2_head(head: bytearray) -> int:
    """Validate the first 16 bytes and return the length of the rest."""
    version, command = head[12] >> 4, head[12] & 0xF
    if version != 2:
        raise ProxyHeaderError(f"a header with the signature of version 2 and version {version}")
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"a version 2 header with command {command}, which is neither LOCAL nor PROXY")
    length = int.from_bytes(head[14:16], "big")
    if length > V2_BODY_BYTES_MAX:
        raise ProxyHeaderError(f"a version 2 header with {length} bytes of addresses and TLVs, limit {V2_BODY_BYTES_MAX}")
    return length


def _read_v2(header: bytes) -> ProxyHeader:
    """Read the first 16 bytes and the addresses after them; TLVs were skipped."""
    if header[12] & 0xF == _LOCAL:
        return ProxyHeader(None, local=True)
    family, transport = header[13] >> 4, header[13] & 0xF
    if family > _UNIX or transport > _DATAGRAM:
        raise ProxyHeaderError(f"a version 2 header with family {family} and transport {transport}, which the protocol does not define")
    if family in (_UNSPEC, _UNIX):
        return ProxyHeader(None, local=False)
    if transport != _STREAM:
        raise ProxyHeaderError(f"a version 2 header of transport {transport} on a TCP connection")
    address_bytes = 4 if family == _INET else 16
    body = header[_V2_HEAD_BYTES:]
    if len(body) < 2 * address_bytes + 4:
        raise ProxyHeaderError(f"a version 2 header with {len(body)} bytes where two addresses and two ports belong")
    source = ipaddress.IPv4Address(body[:4]) if family == _INET else ipaddress.IPv6Address(body[:16])
    return ProxyHeader((_plain(source), int.from_bytes(body[2 * address_bytes : 2 * address_bytes + 2], "big")), local=False)


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return the address, an IPv4-mapped IPv6 address as IPv4."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
