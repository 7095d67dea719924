"""ApiVersions answers that no real broker sent; golden frames have those of real brokers."""

import struct

import pytest

from protocol.errors import BadResponseError
from protocol.messages.api_versions import error_code, fallback_response, intersect, read_api_keys, repair, request_v0
from protocol.request_head import read_request_head

# The answer of librdkafka's mock cluster 2.16 to version 3: after error 35 a count of one byte, an entry, a throttle time.
MOCK_ANSWER = bytes.fromhex("000000110000004d00230100120000000200000000")


def v0(*entries: tuple[int, int, int], error: int = 0) -> bytes:
    """Return a v0 response."""
    body = struct.pack(">ihi", 77, error, len(entries)) + b"".join(struct.pack(">hhh", *entry) for entry in entries)
    return struct.pack(">i", len(body)) + body


def test_the_malformed_answer_of_the_mock_is_written_anew() -> None:
    """The malformed answer of the mock cluster is rewritten as a v0 body with the same versions."""
    with pytest.raises(BadResponseError):
        read_api_keys(3, MOCK_ANSWER)
    repaired = repair(3, MOCK_ANSWER, 4)
    assert repaired == fallback_response(77, 2)
    assert read_api_keys(3, repaired) == [(18, 0, 2)]


@pytest.mark.parametrize("version", range(5))
def test_well_formed_answers_are_not_repaired(version: int) -> None:
    """An answer without an error, or with error 35 and a v0 body, is returned unchanged."""
    for frame in (v0((18, 0, 3), error=35), v0(error=35), v0((0, 0, 9))):
        assert repair(version, frame, 4) is frame


def test_the_minimum_of_produce_is_never_raised() -> None:
    """The lowest version of Produce stays, since librdkafka before 2.8 requires it for record batches (KAFKA-18659)."""
    assert read_api_keys(0, intersect(0, v0((0, 0, 13)), {0: 11}, (), {})) == [(0, 0, 11)]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([(0, 3, 13)], [(0, 3, 9)], id="capped"),
        pytest.param([(0, 10, 13)], [], id="nothing-remains"),
        pytest.param([(5, 0, 1)], [], id="dropped"),
        pytest.param([(9999, 0, 1)], [(9999, 0, 1)], id="unknown-passes"),
        pytest.param([(48, 0, 9)], [(48, 0, 1)], id="own"),
    ],
)
def test_intersect(entries: list[tuple[int, int, int]], expected: list[tuple[int, int, int]]) -> None:
    """Sluice's own ranges replace the broker's, hidden keys are dropped, maxima are lowered, and missing own keys are appended."""
    after = read_api_keys(0, intersect(0, v0(*entries), {0: 9}, {5}, {48: (0, 1)}))
    assert after == (expected if (48, 0, 1) in expected else [*expected, (48, 0, 1)])


def test_an_unchanged_answer_stays_byte_for_byte() -> None:
    """An answer in which nothing is to be reduced stays the same bytes."""
    frame = v0((0, 0, 9), (18, 0, 3))
    assert intersect(0, frame, {}, (), {}) == frame


def test_a_frame_without_error_code_is_refused() -> None:
    """An answer with fewer bytes than an error code is refused."""
    for read in (error_code, lambda frame: read_api_keys(0, frame), lambda frame: repair(3, frame, 4)):
        with pytest.raises(BadResponseError):
            read(bytes.fromhex("000000040000004d"))


def test_our_own_request_reads_as_a_request() -> None:
    """The ApiVersions request that Sluice sends reads like one of a client."""
    frame = request_v0(5, "sluice")
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    assert (head.api.name, head.api.version, head.correlation_id, head.client_id) == ("ApiVersions", 0, 5, "sluice")
    assert head.body_at == len(frame)
