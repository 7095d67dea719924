"""A long Fetch response passes in pieces; only its end, which may contain addresses, is kept."""

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.primitives import uvarint
from tests.support.frames import kafka_frames
from tests.support.memory.memory_connection import ProxyFixture

FETCH = API_VERSIONS[ApiKey.FETCH << 16 | 17]
RECORDS_BYTES = 3_000
LONG_TAIL = b"\x00\x00\x01" + uvarint(9) + uvarint(40_000) + bytes(40_000)  # a tagged field that no version has


def answer(tail: bytes) -> bytes:
    """Return a whole response with one partition; `tail` is all that follows its records."""
    partition = bytes(30) + b"\x00" + bytes(4) + uvarint(RECORDS_BYTES + 1) + bytes(RECORDS_BYTES)
    return kafka_frames.response(FETCH, bytes(10) + b"\x02" + bytes(16) + b"\x02" + partition + tail, 1)


def ours(_node_id: int, _host: str, _port: int) -> tuple[str, int]:
    """Return the client-facing address of a broker."""
    return "sluice.example.org", 9_000


@pytest.mark.parametrize("tail", [bytes(3), LONG_TAIL], ids=["plain", "long-tail"])
@pytest.mark.parametrize("piece_bytes", [100, 1_500, 20_000])
def test_it_arrives_unchanged_and_its_kept_end_is_reserved(tail: bytes, piece_bytes: int) -> None:
    """Bytes that the client has not received yet are the end of the response, and count in the budget for kept bytes until it is whole."""
    frame = answer(tail)
    with ProxyFixture() as proxy:
        peer = proxy.connect(ours)
        peer.sends(kafka_frames.fetch(1, version=FETCH.version))
        received = b""
        for at in range(0, len(frame), piece_bytes):
            piece = frame[at : at + piece_bytes]
            peer.broker.arrive(piece)
            received += peer.client.take()
            kept_bytes = at + len(piece) - len(received)
            assert kept_bytes <= len(tail)
            assert peer.connection.session.buffer.reserved_bytes == kept_bytes
        assert proxy.closed == []
    assert received == frame
