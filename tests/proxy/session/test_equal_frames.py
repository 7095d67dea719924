"""Frames of one length in a row are told from others as a comparison frame by frame tells them."""

from struct import pack, unpack_from

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.session.equal_frames import EQUAL_FRAMES_MIN, equal_requests, equal_responses
from tests.proxy.session.requests.test_segmentation import client_address
from tests.support.frames.kafka_frames import produce
from tests.support.memory.memory_connection import ProxyFixture

INDEX = 7  # Produce v7
CORRELATION_IDS = st.integers(-(1 << 31), (1 << 31) - 1)
CHANGES = st.none() | st.tuples(st.integers(0, 1 << 20), st.integers(1, 255))


def changed(frames: bytes, change: tuple[int, int] | None) -> bytes:
    """Change one byte."""
    if change is None:
        return frames
    at, other = change[0] % len(frames), bytearray(frames)
    other[at] ^= change[1]
    return bytes(other)


@given(st.lists(CORRELATION_IDS, min_size=1, max_size=40), st.binary(min_size=2, max_size=20), st.binary(max_size=30), CHANGES, st.binary())
def test_equal_requests_are_those_with_equal_size_and_head(
    correlation_ids: list[int], prefix: bytes, body: bytes, change: tuple[int, int] | None, before: bytes
) -> None:
    """The ids are returned unless a size, an API version or the bytes behind an id differ; a changed id or body is no difference."""
    size, count = 8 + len(prefix) + len(body), len(correlation_ids)
    frames = changed(b"".join(pack(">iIi", size, INDEX, number) + prefix + body for number in correlation_ids), change)
    starts = range(0, len(frames), size + 4)
    is_equal = all(unpack_from(">iI", frames, at) == (size, INDEX) and frames.startswith(prefix, at + 12) for at in starts)
    expected = tuple(unpack_from(">i", frames, at + 8)[0] for at in starts) if is_equal else None
    assert equal_requests(before + frames, len(before), size, INDEX, prefix, count) == expected


@given(st.lists(CORRELATION_IDS, min_size=1, max_size=40), st.binary(max_size=30), CHANGES, st.binary())
def test_equal_responses_are_those_of_equal_size(
    correlation_ids: list[int], body: bytes, change: tuple[int, int] | None, before: bytes
) -> None:
    """The ids are returned unless a size differs."""
    size, count = 4 + len(body), len(correlation_ids)
    frames = changed(b"".join(pack(">ii", size, number) + body for number in correlation_ids), change)
    starts = range(0, len(frames), size + 4)
    is_equal = all(unpack_from(">i", frames, at) == (size,) for at in starts)
    expected = tuple(unpack_from(">i", frames, at + 4)[0] for at in starts) if is_equal else None
    assert equal_responses(before + frames, len(before), size, count) == expected


def entered(pieces: list[bytes]) -> tuple[list[tuple[int | None, int, int]], bytes, int]:
    """Send pieces of requests; return the requests in flight, the bytes that the broker gets, and the kept bytes."""
    with ProxyFixture(produce=1e12) as proxy:
        peer = proxy.connect(client_address)
        for piece in pieces:
            peer.client.arrive(piece)
        session = peer.connection.session
        in_flight = [(correlation_id, head.index, size) for correlation_id, head, size, _, _ in session.in_flight]
        return in_flight, peer.broker.take(), session.requests.pending.kept_bytes


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([3, 7, 7, 7, 7]), st.sampled_from([0, 50, 50, 50, 50, 3_000])), min_size=EQUAL_FRAMES_MIN, max_size=60
    ),
    st.integers(0, 4_000),
)
def test_requests_in_one_piece_are_entered_like_requests_one_by_one(requests: list[tuple[int, int]], missing_bytes: int) -> None:
    """The requests in flight, the forwarded and the kept bytes are the same, also when the end of the last request is missing."""
    frames = [produce(number, size=size, version=version) for number, (version, size) in enumerate(requests)]
    last = frames[-1]
    frames[-1] = last[: max(len(last) - missing_bytes, 1)]
    assert entered([b"".join(frames)]) == entered(frames)
