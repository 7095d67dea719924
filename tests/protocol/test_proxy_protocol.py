"""The PROXY header in both versions: bytes written by hand from the public specification, split anywhere, followed by anything."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProxyHeaderError
from protocol.proxy_protocol import V1_BYTES_MAX, V2_BODY_BYTES_MAX, ProxyHeader, ProxyHeaderReader
from tests.support.scripted.proxy_headers import (
    AF_INET,
    AF_INET6,
    AF_UNIX,
    AF_UNSPEC,
    DATAGRAM,
    LOCAL,
    PROXY,
    STREAM,
    UNSPEC,
    tlv,
    v1_header,
    v2_header,
    v2_local,
    v2_raw,
)

SIGNATURE = "0d0a0d0a 000d0a51 5549540a"
NOBODY = ProxyHeader(None, local=False)

GOLDEN = {
    "v1-ipv4": (b"PROXY TCP4 192.0.2.7 198.51.100.9 56324 9092\r\n", ("192.0.2.7", 56324)),
    "v1-ipv4-longest": (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65535)),
    "v1-ipv6": (b"PROXY TCP6 2001:db8::7 2001:db8::1 0 9092\r\n", ("2001:db8::7", 0)),
    "v1-ipv6-longest": (b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n", (":".join(["ffff"] * 8), 65535)),
    "v1-unknown-short": (b"PROXY UNKNOWN\r\n", None),
    "v1-unknown-longest": (b"PROXY UNKNOWN " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n", None),
    "v1-unknown-whatever": (b"PROXY UNKNOWN \xff\x00 what stands here is not looked at\r\n", None),
    "v2-ipv4": (bytes.fromhex(SIGNATURE + "21 11 000c c0000207 c6336409 dc04 2384"), ("192.0.2.7", 56324)),
    "v2-ipv6": (
        bytes.fromhex(SIGNATURE + "21 21 0024 20010db8000000000000000000000007 20010db8000000000000000000000001 dc04 2384"),
        ("2001:db8::7", 56324),
    ),
    "v2-mapped": (
        bytes.fromhex(SIGNATURE + "21 21 0024 00000000000000000000ffffc0000207 00000000000000000000ffffc6336409 dc04 2384"),
        ("192.0.2.7", 56324),
    ),
    "v2-ipv4-tlvs": (bytes.fromhex(SIGNATURE + "21 11 0013 c0000207 c6336409 dc04 2384 040004 00000000"), ("192.0.2.7", 56324)),
    "v2-unspec": (bytes.fromhex(SIGNATURE + "21 00 0000"), None),
    "v2-unix": (bytes.fromhex(SIGNATURE + "21 31 00d8" + "2f" * 216), None),
    "v2-unix-dgram": (bytes.fromhex(SIGNATURE + "21 32 00d8" + "2f" * 216), None),
}
LOCALS = {
    "local-bare": bytes.fromhex(SIGNATURE + "20 00 0000"),
    "local-with-addresses": bytes.fromhex(SIGNATURE + "20 11 000c c0000207 c6336409 dc04 2384"),
    "local-with-tlvs": bytes.fromhex(SIGNATURE + "20 00 0007 040004 00000000"),
    "local-with-nonsense": bytes.fromhex(SIGNATURE + "20 ff 0003 010203"),
}


def read(data: bytes, step: int | None = None) -> tuple[ProxyHeader | None, int]:
    """Feed the bytes in pieces of `step`; return the header and how many bytes were consumed."""
    reader = ProxyHeaderReader()
    taken = 0
    for at in range(0, len(data), step or max(1, len(data))):
        piece = data[at : at + (step or len(data))]
        part = reader.feed(piece)
        taken += part
        if part < len(piece):
            break
    return reader.header, taken


@pytest.mark.parametrize("step", [None, 1, 2, 7, 16])
@pytest.mark.parametrize("name", GOLDEN)
def test_headers_of_the_specification(name: str, step: int | None) -> None:
    """The header names its source address, and the bytes after it stay unread."""
    data, source = GOLDEN[name]
    assert read(data + b"\x00\x00\x00\x10rest", step) == (ProxyHeader(source, local=False), len(data))


@pytest.mark.parametrize("name", LOCALS)
def test_a_balancer_that_asks_for_itself(name: str) -> None:
    """A LOCAL header names no client, whatever else it carries."""
    data = LOCALS[name]
    assert read(data + b"rest") == (ProxyHeader(None, local=True), len(data))


@pytest.mark.parametrize("data", [data for data, _ in GOLDEN.values()] + list(LOCALS.values()))
def test_a_part_of_a_header_is_waited_for(data: bytes) -> None:
    """A prefix of a header is neither an error nor a header, and all of it is consumed."""
    for end in range(len(data)):
        assert read(data[:end]) == (None, end)
        assert read(data[:end], 3) == (None, end)


def test_the_bytes_written_by_hand_are_what_an_encoder_makes() -> None:
    """An encoder with `struct` and `inet_pton` gives the bytes that were written by hand."""
    client, listener = ("192.0.2.7", 56324), ("198.51.100.9", 9092)
    client6, listener6 = ("2001:db8::7", 56324), ("2001:db8::1", 9092)
    assert GOLDEN["v1-ipv4"][0] == v1_header(client, listener)
    assert GOLDEN["v2-ipv4"][0] == v2_header(client, listener)
    assert GOLDEN["v2-ipv6"][0] == v2_header(client6, listener6)
    assert GOLDEN["v2-mapped"][0] == v2_header(("::ffff:192.0.2.7", 56324), ("::ffff:198.51.100.9", 9092))
    assert GOLDEN["v2-ipv4-tlvs"][0] == v2_header(client, listener, tlv(4, bytes(4)))
    assert LOCALS["local-bare"] == v2_local()


BROKEN = {
    "kafka": (bytes.fromhex("00000010 0012 0003 00000001"), "no PROXY header"),
    "http": (b"GET / HTTP/1.1\r\n", "no PROXY header"),
    "tls": (bytes.fromhex("1603010200"), "no PROXY header"),
    "lower-case": (b"proxy TCP4 192.0.2.7 192.0.2.8 1 2\r\n", "no PROXY header"),
    "v1-no-end": (b"PROXY UNKNOWN " + b"x" * 107, "without an end in 107 bytes"),
    "v1-one-too-long": (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", "without an end in 107 bytes"),
    "v1-no-protocol": (b"PROXY \r\n", "neither TCP4"),
    "v1-unknown-and-more": (b"PROXY UNKNOWNS\r\n", "neither TCP4"),
    "v1-udp": (b"PROXY UDP4 192.0.2.7 192.0.2.8 1 2\r\n", "neither TCP4"),
    "v1-two-spaces": (b"PROXY TCP4  192.0.2.7 192.0.2.8 1 2\r\n", "neither TCP4"),
    "v1-field-missing": (b"PROXY TCP4 192.0.2.7 192.0.2.8 1\r\n", "neither TCP4"),
    "v1-field-too-many": (b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2 3\r\n", "neither TCP4"),
    "v1-families-mixed": (b"PROXY TCP4 2001:db8::7 192.0.2.8 1 2\r\n", "not IPv4"),
    "v1-destination": (b"PROXY TCP4 192.0.2.7 elsewhere 1 2\r\n", "not IPv4"),
    "v1-leading-zero": (b"PROXY TCP4 192.0.2.07 192.0.2.8 1 2\r\n", "not IPv4"),
    "v1-not-ascii": (b"PROXY TCP4 192.0.2.\xb7 192.0.2.8 1 2\r\n", "not IPv4"),
    "v1-zone": (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "not IPv6"),
    "v1-v4-as-v6": (b"PROXY TCP6 192.0.2.7 ::1 1 2\r\n", "not IPv6"),
    "v1-port-too-large": (b"PROXY TCP4 192.0.2.7 192.0.2.8 65536 2\r\n", "port"),
    "v1-port-leading-zero": (b"PROXY TCP4 192.0.2.7 192.0.2.8 01 2\r\n", "port"),
    "v1-port-signed": (b"PROXY TCP4 192.0.2.7 192.0.2.8 +1 2\r\n", "port"),
    "v1-port-empty": (b"PROXY TCP4 192.0.2.7 192.0.2.8  2\r\n", "port"),
    "v2-signature-broken": (bytes.fromhex("0d0a0d0a 000d0a51 5549540b"), "no PROXY header"),
    "v2-version-1": (v2_raw(PROXY, AF_INET, STREAM, bytes(12), version=1), "version 2 and version 1"),
    "v2-version-3": (v2_raw(PROXY, AF_INET, STREAM, bytes(12), version=3), "version 2 and version 3"),
    "v2-command": (v2_raw(2, AF_INET, STREAM, bytes(12)), "command 2"),
    "v2-family": (v2_raw(PROXY, 4, STREAM, bytes(12)), "family 4"),
    "v2-transport": (v2_raw(PROXY, AF_INET, 3, bytes(12)), "transport 3"),
    "v2-datagram": (v2_raw(PROXY, AF_INET, DATAGRAM, bytes(12)), "on a TCP connection"),
    "v2-no-transport": (v2_raw(PROXY, AF_INET6, UNSPEC, bytes(36)), "on a TCP connection"),
    "v2-addresses-short": (v2_raw(PROXY, AF_INET, STREAM, bytes(11)), "11 bytes where"),
    "v2-addresses-short-6": (v2_raw(PROXY, AF_INET6, STREAM, bytes(35)), "35 bytes where"),
    "v2-too-long": (v2_raw(PROXY, AF_INET, STREAM, b"", length=V2_BODY_BYTES_MAX + 1), "limit 4096"),
    "v2-local-too-long": (v2_raw(LOCAL, AF_UNSPEC, UNSPEC, b"", length=65_535), "limit 4096"),
}


@pytest.mark.parametrize("step", [None, 1, 5])
@pytest.mark.parametrize("name", BROKEN)
def test_anything_else_is_an_error_that_says_why(name: str, step: int | None) -> None:
    """A missing header and an invalid one are different errors, each with its reason."""
    data, message = BROKEN[name]
    with pytest.raises(ProxyHeaderError, match=message) as caught:
        read(data, step)
    assert caught.value.reason == "proxy_header"


def test_what_may_be_long_is_not_kept() -> None:
    """TLVs up to the limit are skipped without being kept."""
    body = v2_header(("192.0.2.7", 1), tlvs=bytes(V2_BODY_BYTES_MAX - 12))
    reader = ProxyHeaderReader()
    kept = []
    for at in range(0, len(body), 100):
        assert reader.feed(body[at : at + 100]) == len(body[at : at + 100])
        kept.append(len(reader._kept))
    assert reader.header == ProxyHeader(("192.0.2.7", 1), local=False)
    assert max(kept) <= V1_BYTES_MAX


def test_nothing_is_taken_after_the_header() -> None:
    """A reader that has its header consumes no more bytes."""
    reader = ProxyHeaderReader()
    reader.feed(v2_local())
    assert reader.feed(v2_local()) == 0


PORTS = st.integers(0, 65_535)
ADDRESSES = st.tuples(st.ip_addresses(v=4).map(str), PORTS) | st.tuples(st.ip_addresses(v=6).map(str), PORTS)


def plain(source: tuple[str, int]) -> tuple[str, int]:
    """Return the form in which Sluice writes an address."""
    mapped = getattr(ipaddress.ip_address(source[0]), "ipv4_mapped", None)
    return (str(mapped or source[0]), source[1])


@given(
    source=ADDRESSES, version=st.sampled_from([1, 2]), rest=st.binary(max_size=40), step=st.integers(1, 60), tlvs=st.binary(max_size=300)
)
def test_any_address_in_any_pieces(source: tuple[str, int], version: int, rest: bytes, step: int, tlvs: bytes) -> None:
    """A header that is split anywhere names its client and leaves the following bytes."""
    local = ("::1", 9092) if ":" in source[0] else ("127.0.0.1", 9092)
    header = v1_header(source, local) if version == 1 else v2_header(source, local, tlvs)
    assert read(header + rest, step) == (ProxyHeader(plain(source), local=False), len(header))


@given(family=st.sampled_from([AF_UNSPEC, AF_UNIX]), transport=st.sampled_from([UNSPEC, STREAM, DATAGRAM]), body=st.binary(max_size=250))
def test_families_without_an_address_of_the_internet(family: int, transport: int, body: bytes) -> None:
    """Address families other than IPv4 and IPv6 name no client and are no error."""
    assert read(v2_raw(PROXY, family, transport, body)) == (NOBODY, 16 + len(body))
