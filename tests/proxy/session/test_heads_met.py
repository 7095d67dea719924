"""What many connections begin with is parsed once."""

from protocol.request_head import read_request_head
from proxy.session.heads_met import FRAME_BYTES_MAX, HEADS_MAX, HeadsMet
from tests.support.kafka_frames import fetch, plain


def read(met: HeadsMet, frame: bytes) -> object:
    return met.read(frame, 0, len(frame) - 4, unknown_apis_pass=False)


def test_the_same_bytes_are_read_once() -> None:
    """Two requests that differ in nothing but the correlation id share what was read; it is what reading says."""
    met = HeadsMet()
    first, second = read(met, plain(1)), read(met, plain(2))
    assert first is second is not None
    plainly = read_request_head(plain(2), 0, len(plain(2)) - 4)
    assert plainly is not None
    assert all(getattr(first, name) == getattr(plainly, name) for name in plainly.__slots__ if name != "correlation_id")


def test_another_byte_is_another_head() -> None:
    """Limits of a fetch, versions and client-ids are told apart."""
    met = HeadsMet()
    frames = [fetch(1), fetch(1, max_bytes=7), fetch(1, version=4), plain(1), plain(1, client_id="other")]
    assert len({id(read(met, frame)) for frame in frames}) == len(frames)


def test_what_is_not_here_in_whole_is_not_remembered() -> None:
    """A frame that TCP cut, or a large one, is read as it stands."""
    met = HeadsMet()
    frame = plain(1)
    assert met.read(frame[:-1], 0, len(frame) - 4, unknown_apis_pass=False) is not read(met, frame)
    large = plain(1, client_id="x" * (FRAME_BYTES_MAX + 1))
    assert read(met, large) is not read(met, large)


def test_the_number_of_heads_is_bounded() -> None:
    """Clients choose their bytes."""
    met = HeadsMet()
    for number in range(HEADS_MAX + 10):
        read(met, plain(1, client_id=str(number)))
    assert len(met._heads) <= HEADS_MAX
