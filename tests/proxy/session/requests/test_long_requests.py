"""Requests that have to be complete before they are forwarded: their pieces are buffered, and long ones are read in turns."""

import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.limits import MAX_CHANGE_REQUEST_BYTES
from proxy.base.close_reason import CloseReason
from proxy.base.pause_reason import LONG_REQUEST
from proxy.enforcement.mode import Mode
from proxy.net.turns import READS_PER_TURN
from proxy.session.requests.unfinished_frame import PIECE_BYTES, UnfinishedFrame
from tests.support.frames.kafka_frames import api_of, produce, produced, request, request_ids
from tests.support.frames.layout_codec import uvarint
from tests.support.memory.memory_connection import Peer, ProxyFixture

CREATE = 19
READ_BYTES = 256 * 1024
PIECES = st.lists(st.sampled_from([b"a", b"bc" * 50, b"d" * 5_000, b"e" * PIECE_BYTES, b"f" * (PIECE_BYTES + 1)]), max_size=30)


@pytest.fixture
def proxy() -> Iterator[ProxyFixture]:
    """Yield a proxy with a mutation quota, so that requests for topics have to be complete."""
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=1_000.0)
        yield proxy


def long_create() -> bytes:
    """Return a CreateTopics v7 request of one topic with a megabyte of configurations."""
    configs = 1_000_000 // 1_003
    topic = (
        b"\x02t"
        + struct.pack(">ih", 1, 1)
        + b"\1"
        + uvarint(configs + 1)
        + (b"\2k" + uvarint(1_001) + b"v" * 1_000 + b"\0") * configs
        + b"\0"
    )
    frame = request(api_of(CREATE, 7), b"\2" + topic + struct.pack(">i", 30_000) + b"\0\0", 7)
    assert 3 * READ_BYTES < len(frame) < MAX_CHANGE_REQUEST_BYTES
    return frame


def pieces_of(frame: bytes) -> list[bytes]:
    """Return the frame in pieces of one read each."""
    return [frame[at : at + READ_BYTES] for at in range(0, len(frame), READ_BYTES)]


@given(first=st.binary(max_size=20), pieces=PIECES)
def test_pieces_join_to_what_came(first: bytes, pieces: list[bytes]) -> None:
    """Pieces of any size are joined in order and counted."""
    whole = first + b"".join(pieces)
    frame = UnfinishedFrame(first, len(whole))
    enough = [frame.add(piece) for piece in pieces]
    assert frame.joined() == whole
    assert frame.have_bytes == len(whole)
    assert not any(enough[:-1])
    assert all(enough[-1:])


def test_small_reads_take_no_more_memory_than_is_counted() -> None:
    """Small pieces take at most an eighth more memory than their bytes."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        frame = UnfinishedFrame(b"", 4 * PIECE_BYTES)
        for _ in range(PIECE_BYTES):
            frame.add(b"xyz")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frame.have_bytes == 3 * PIECE_BYTES
    assert after - before <= frame.have_bytes * 9 / 8 + 2_000


def test_a_long_request_goes_on_whole(proxy: ProxyFixture) -> None:
    """A long request is read in turns and then forwarded whole."""
    peer, frame = proxy.connect(), long_create()
    for piece in pieces_of(frame):
        peer.client.arrive(piece)
    proxy.wait(0)
    assert peer.broker.take() == frame
    assert len(proxy.long_requests) == 0
    peer.client.arrive(produce(2))
    assert request_ids(peer.broker.take()) == [2]


def test_clients_with_long_requests_are_read_in_turn(proxy: ProxyFixture) -> None:
    """A turn of the event loop reads at most `READS_PER_TURN` long requests, and each in rotation."""
    peers = [proxy.connect() for _ in range(3 * READS_PER_TURN)]
    pieces = pieces_of(long_create())[:-1]
    for piece in pieces:
        for peer in peers:
            peer.client.arrive(piece)
    assert [read_pieces(peer, len(pieces)) for peer in peers] == [1] * len(peers)
    before = len(peers)
    while len(proxy.long_requests):
        proxy.loop.turn()
        counts = [read_pieces(peer, len(pieces)) for peer in peers]
        assert sum(counts) - before <= READS_PER_TURN
        assert max(counts) - min(counts) <= 1
        before = sum(counts)
    assert before == len(peers) * len(pieces)


def test_a_client_that_closes_its_side_in_a_long_request_is_read_no_more(proxy: ProxyFixture) -> None:
    """A client that half-closes in a long request is not read again, and the connection ends after its responses."""
    peer = proxy.connect()
    assert peer.sends(produce(1)) == [1]
    peer.client.arrive(pieces_of(long_create())[0])
    proxy.wait(0)
    peer.connection.client.eof_received()
    assert not peer.connection.client.pauses & LONG_REQUEST
    assert len(proxy.long_requests) == 0
    assert peer.answers(produced(1)) == [1]
    assert proxy.closed[0][0] is CloseReason.CLIENT_CLOSED


def test_a_client_that_leaves_in_a_long_request_takes_no_turn(proxy: ProxyFixture) -> None:
    """A connection that closes in a long request takes no turn of the others."""
    peers = [proxy.connect() for _ in range(2 * READS_PER_TURN)]
    for peer in peers:
        peer.client.arrive(pieces_of(long_create())[0])
    peers[0].connection.close(CloseReason.CLIENT_CLOSED)
    proxy.wait(0)
    assert len(proxy.long_requests) == 0
    assert peers[0].connection.closing
    assert not any(peer.connection.closing for peer in peers[1:])


def read_pieces(peer: Peer, count: int) -> int:
    """Return how many of a client's pieces have been read."""
    return count - peer.client.unread_reads
