"""The walk over Produce answers agrees with the field tables, on its short path and on its full one."""

import struct

import pytest
from hypothesis import given, settings

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.layout import layout_of
from protocol.messages.produce import walk_produce
from protocol.messages.throttle_time import throttle_at
from tests.support.frames import layout_codec
from tests.support.frames.message_strategies import bodies, frame_of

FLEXIBLE = [API_VERSIONS[ApiKey.PRODUCE << 16 | version] for version in range(9, 14)]
BY_VERSION = pytest.mark.parametrize("api", FLEXIBLE, ids=lambda api: f"v{api.version}")


@BY_VERSION
def test_generated_answers(api: ApiVersion) -> None:
    """The place of the throttle time equals the compiled walker's, and endpoints are found exactly when the tagged field is present."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=30, deadline=None)
    @given(body=bodies(layout, unknown_tags=True))
    def check(body: dict[str, object]) -> None:
        frame = frame_of(api, layout_codec.encode(layout, body))
        found = walk_produce(api, b"xx" + frame + b"yy", 2, 2 + len(frame))
        assert found == (throttle_at(api, frame), "NodeEndpoints" in body)

    check()


def plain(api: ApiVersion, *, topics: int = 1, partitions: int = 1, name: str = "payments") -> bytes:
    """Return an answer without errors and tagged fields."""
    partition = struct.pack(">ihqqq", 3, 0, 100, -1, 0) + b"\x01\x00\x00"
    topic = bytes(range(16)) if api.version >= 13 else bytes([len(name) + 1]) + name.encode()
    body = bytes([topics + 1]) + (topic + bytes([partitions + 1]) + partition * partitions + b"\x00") * topics
    return frame_of(api, body + struct.pack(">i", 77) + b"\x00")


@BY_VERSION
@pytest.mark.parametrize(("topics", "partitions"), [(0, 0), (1, 0), (1, 1), (1, 2), (2, 1), (5, 20)])
def test_plain_answers(api: ApiVersion, topics: int, partitions: int) -> None:
    """In a plain answer with only an empty tag section after it, the throttle time begins 5 bytes before the end."""
    frame = plain(api, topics=topics, partitions=partitions)
    assert walk_produce(api, frame, 0, len(frame)) == (len(frame) - 5, False)


@BY_VERSION
def test_what_only_looks_plain_is_walked(api: ApiVersion) -> None:
    """An answer that ends like a plain one and is none is read by its own counts."""
    for at in range(9, len(plain(api))):
        frame = bytearray(plain(api))
        frame[at] ^= 0x01
        try:
            expected = throttle_at(api, bytes(frame))
        except BadResponseError:
            continue
        try:
            found, _ = walk_produce(api, bytes(frame), 0, len(frame))
        except BadResponseError:
            continue
        assert found == expected


def test_a_long_topic_name() -> None:
    """A topic name from 127 bytes on, whose length takes two bytes, is read."""
    frame = plain(FLEXIBLE[0], name="t" * 126)
    assert walk_produce(FLEXIBLE[0], frame, 0, len(frame)) == (len(frame) - 5, False)
    body = b"\x02\xfa\x01" + b"t" * 249 + b"\x01\x00" + struct.pack(">i", 77) + b"\x00"
    frame = frame_of(FLEXIBLE[0], body)
    assert walk_produce(FLEXIBLE[0], frame, 0, len(frame)) == (len(frame) - 5, False)


@BY_VERSION
def test_an_answer_that_goes_past_its_frame_is_refused(api: ApiVersion) -> None:
    """An answer whose fields extend beyond its frame is refused."""
    frame = plain(api)
    with pytest.raises(BadResponseError):
        walk_produce(api, frame + frame, 0, len(frame) - 3)
