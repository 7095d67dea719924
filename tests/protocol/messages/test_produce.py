"""The fast path and the general path over Produce responses find the throttle time and the endpoints."""

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
    """The throttle time and the endpoints of a generated response are found where the schema says."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=60, deadline=None)
    @given(body=bodies(layout, unknown_tags=True))
    def check(body: dict[str, object]) -> None:
        frame = frame_of(api, layout_codec.encode(layout, body))
        found = walk_produce(api, b"xx" + frame + b"yy", 2, 2 + len(frame))
        assert found == (throttle_at(api, frame), "NodeEndpoints" in body)

    check()


def plain(api: ApiVersion, *, topics: int = 1, partitions: int = 1, name: str = "payments") -> bytes:
    """Return a response without errors or optional fields."""
    partition = struct.pack(">ihqqq", 3, 0, 100, -1, 0) + b"\x01\x00\x00"
    topic = bytes(range(16)) if api.version >= 13 else bytes([len(name) + 1]) + name.encode()
    body = bytes([topics + 1]) + (topic + bytes([partitions + 1]) + partition * partitions + b"\x00") * topics
    return frame_of(api, body + struct.pack(">i", 77) + b"\x00")


@BY_VERSION
@pytest.mark.parametrize(("topics", "partitions"), [(0, 0), (1, 0), (1, 1), (1, 2), (2, 1), (5, 20)])
def test_plain_answers(api: ApiVersion, topics: int, partitions: int) -> None:
    """The throttle time of a response without tagged fields is found 5 bytes before its end."""
    frame = plain(api, topics=topics, partitions=partitions)
    assert walk_produce(api, frame, 0, len(frame)) == (len(frame) - 5, False)


@BY_VERSION
def test_what_only_looks_plain_is_walked(api: ApiVersion) -> None:
    """The throttle time of a response with one changed bit is found where the general path finds it, or the response is refused."""
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
    """The throttle time is found behind topic names whose length takes one or two bytes."""
    frame = plain(FLEXIBLE[0], name="t" * 126)
    assert walk_produce(FLEXIBLE[0], frame, 0, len(frame)) == (len(frame) - 5, False)
    body = b"\x02\xfa\x01" + b"t" * 249 + b"\x01\x00" + struct.pack(">i", 77) + b"\x00"
    frame = frame_of(FLEXIBLE[0], body)
    assert walk_produce(FLEXIBLE[0], frame, 0, len(frame)) == (len(frame) - 5, False)


@BY_VERSION
def test_an_answer_that_goes_past_its_frame_is_refused(api: ApiVersion) -> None:
    """A response that continues beyond its frame is refused although more bytes follow."""
    frame = plain(api)
    with pytest.raises(BadResponseError):
        walk_produce(api, frame + frame, 0, len(frame) - 3)
