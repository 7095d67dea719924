"""The throttle time of a response is found and raised, also in frames that arrive in pieces."""

import json
import struct
from pathlib import Path

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.errors import BadResponseError
from protocol.messages.throttle_time import NOT_HERE_YET, stamp, throttle_at

FRAMES = Path(__file__).parents[2] / "vectors" / "frames"
CASES = json.loads((FRAMES / "throttle.json").read_text(encoding="utf-8"))["cases"]


def test_every_prefix_gives_the_same_place_or_asks_for_more() -> None:
    """Every prefix of a response gives either the right offset of its throttle time or none yet."""
    for case in CASES:
        api = API_VERSIONS[case["key"] << 16 | case["version"]]
        frame = b"xx" + bytes.fromhex(case["frame"])
        for end in range(6, len(frame)):
            found = throttle_at(api, frame[:end], 2)
            assert found in (case["at"], NOT_HERE_YET), case["name"]
            if case["at"] is not None and end >= 2 + case["at"] + 4:
                assert found == case["at"], case["name"]


def test_a_first_field_is_found_before_it_arrives() -> None:
    """The offset of a throttle time that is the first field is known from the response header."""
    assert throttle_at(API_VERSIONS[ApiKey.FETCH << 16 | 12], struct.pack(">ii", 1000, 7) + b"\x00") == 9
    assert throttle_at(API_VERSIONS[ApiKey.FETCH << 16 | 12], struct.pack(">ii", 1000, 7)) == NOT_HERE_YET
    assert throttle_at(API_VERSIONS[ApiKey.FETCH << 16 | 11], struct.pack(">ii", 1000, 7)) == 8


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(ApiKey.PRODUCE, 3, struct.pack(">i", 2**31 - 1), id="topics-that-are-not-there"),
        pytest.param(ApiKey.PRODUCE, 9, b"\x00\x01\x00", id="half-a-throttle-time"),
        pytest.param(ApiKey.METADATA, 9, b"\x00\x00", id="a-frame-without-room"),
        pytest.param(ApiKey.METADATA, 9, b"", id="no-header"),
        pytest.param(ApiKey.API_VERSIONS, 3, b"\x00", id="half-an-error-code"),
    ],
)
def test_a_whole_frame_without_its_field_is_refused(key: ApiKey, version: int, body: bytes) -> None:
    """A complete response that is too short for its throttle time is refused."""
    with pytest.raises(BadResponseError):
        throttle_at(API_VERSIONS[key << 16 | version], struct.pack(">ii", 4 + len(body), 7) + body)


@pytest.mark.parametrize(("before", "asked", "after"), [(0, 500, 500), (5000, 4000, 5000), (5000, 5001, 5001), (0, 0, 0)])
def test_the_larger_time_wins(before: int, asked: int, after: int) -> None:
    """Writing a throttle time never lowers the one in the response."""
    buffer = bytearray(b"ab" + struct.pack(">i", before) + b"cd")
    assert stamp(buffer, 2, asked) is (after != before)
    assert buffer == b"ab" + struct.pack(">i", after) + b"cd"
