"""The ClientHello reader finds the host name (SNI) in the first TLS message of a client."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client_hello import EXTENSIONS_MAX, HELLO_BYTES_MAX, RECORDS_MAX, ClientHelloReader
from protocol.errors import ClientHelloError
from tests.support.frames.tls_hellos import hello, host_name, message_of, records, vector, written

NAME = "broker-7.kafka.example.org"
REAL = hello(NAME)


def read(data: bytes) -> ClientHelloReader:
    reader = ClientHelloReader()
    reader.feed(data)
    return reader


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", [NAME, None])
def test_the_name_of_a_real_hello(version: ssl.TLSVersion, name: str | None) -> None:
    """The host name of a ClientHello written by OpenSSL is found, or none if it has none."""
    reader = read(hello(name, version))
    assert (reader.is_whole, reader.server_name) == (True, name)


@given(cuts=st.sets(st.integers(1, len(REAL) - 1), max_size=9), behind=st.binary(max_size=9))
def test_it_may_come_in_any_pieces_and_all_of_it_is_kept(cuts: set[int], behind: bytes) -> None:
    """The name is known when the last byte has arrived, and all bytes read are kept for TLS."""
    reader = ClientHelloReader()
    at = 0
    for cut in [*sorted(cuts), len(REAL)]:
        assert not reader.is_whole
        whole = reader.feed(REAL[at:cut] + (behind if cut == len(REAL) else b""))
        assert whole == (cut == len(REAL))
        at = cut
    assert reader.server_name == NAME
    assert reader.data == REAL + behind


@given(sizes=st.lists(st.integers(1, 200), max_size=5))
def test_it_may_be_cut_into_records(sizes: list[int]) -> None:
    """A ClientHello in several TLS records is read as one message."""
    data = records(message_of(REAL), *sizes)
    assert read(data).server_name == NAME
    assert not read(data[:-1]).is_whole


def test_case_does_not_count() -> None:
    """A host name is returned in lower case."""
    assert read(written(host_name(b"Kafka.Example.ORG"))).server_name == "kafka.example.org"


@pytest.mark.parametrize("data", [written(bare=True), written(), written((10, b"\0\x02\0\x17"))])
def test_a_hello_without_a_name(data: bytes) -> None:
    """A ClientHello without extensions, or without a host name among them, is complete and has no name."""
    reader = read(data)
    assert reader.is_whole
    assert reader.server_name is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "not_tls", id="http"),
        pytest.param(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01", "not_tls", id="kafka"),
        pytest.param(b"\x16\x02", "not_tls", id="version"),
        pytest.param(b"\x16\x03\x01\0\0", "tls_handshake", id="empty-record"),
        pytest.param(b"\x16\x03\x01\x40\x01", "tls_handshake", id="long-record"),
        pytest.param(records(b"\x02\0\0\x01x"), "tls_handshake", id="no-hello"),
        pytest.param(records(b"\x01" + (HELLO_BYTES_MAX + 1).to_bytes(3)), "tls_handshake", id="long-hello"),
        pytest.param(records(b"\x01" + vector(b"\x03\x03" + bytes(9), 3)), "tls_handshake", id="short"),
        pytest.param(written((0, b"\0\x09\0")), "tls_handshake", id="list-beyond-its-end"),
        pytest.param(written((0, b"\0\0")), "tls_handshake", id="no-name-in-the-list"),
        pytest.param(written(host_name(b"a", kind=1)), "tls_handshake", id="another-kind"),
        pytest.param(written(host_name(b"")), "tls_handshake", id="empty-name"),
        pytest.param(written(host_name(b"a\0b")), "tls_handshake", id="nul"),
        pytest.param(written(host_name("ä".encode())), "tls_handshake", id="not-ascii"),
        pytest.param(written(host_name(b"a" * 256)), "tls_handshake", id="long-name"),
    ],
)
def test_what_is_none_is_refused(data: bytes, reason: str) -> None:
    """Other protocols and malformed ClientHellos are refused with a reason."""
    with pytest.raises(ClientHelloError) as caught:
        read(data)
    assert caught.value.reason == reason


def test_records_of_a_byte_each_end() -> None:
    """A ClientHello in more than 256 records is refused, and the bytes kept are bounded."""
    reader = ClientHelloReader()
    message = b"\x01" + HELLO_BYTES_MAX.to_bytes(3) + bytes(HELLO_BYTES_MAX)
    tiny = [b"\x16\x03\x01\0\x01" + bytes([byte]) for byte in message]
    with pytest.raises(ClientHelloError, match="more than 256 records"):
        any(map(reader.feed, tiny))
    assert len(reader.data) == 6 * (RECORDS_MAX + 1)


@pytest.mark.parametrize(("others", "name"), [(EXTENSIONS_MAX - 1, NAME), (EXTENSIONS_MAX, None)])
def test_so_many_extensions_are_looked_through(others: int, name: str | None) -> None:
    """The host name is found behind as many extensions as allowed, and one extension more is refused."""
    data = written(*[(1, b"")] * others, host_name(NAME.encode()))
    if name is not None:
        assert read(data).server_name == name
        return
    with pytest.raises(ClientHelloError, match="more than 256 extensions"):
        read(data)


@given(st.data())
def test_a_spoilt_hello_is_read_or_refused(data: st.DataObject) -> None:
    """A ClientHello with changed bytes is either read or refused with ClientHelloError."""
    spoilt = bytearray(REAL)
    for at in data.draw(st.lists(st.integers(0, len(REAL) - 1), min_size=1, max_size=4)):
        spoilt[at] = data.draw(st.integers(0, 255))
    reader = ClientHelloReader()
    try:
        reader.feed(bytes(spoilt))
    except ClientHelloError:
        return
    assert reader.server_name is None or len(reader.server_name) <= 255
