"""ApiVersions answers that real brokers did not send; golden frames hold those that they did."""

import struct

import pytest

from protocol.errors import BadResponseError
from protocol.messages.api_versions import error_code, fallback_response, intersect, read_api_keys, repair, request_v0
from protocol.request_head import read_request_head

# What librdkafka's mock cluster 2.16 answers to version 3: after error 35 a count of one byte, an entry, a throttle time.
MOCK_ANSWER = bytes.fromhex("000000110000004d00230100120000000200000000")


def v0(*entries: tuple[int, int, int], error: int = 0) -> bytes:
    """Return a v0 answer."""
    body = struct.pack(">ihi", 77, error, len(entries)) + b"".join(struct.pack(">hhh", *entry) for entry in entries)
    return struct.pack(">i", len(body)) + body


def test_the_malformed_answer_of_the_mock_is_written_anew() -> None:
    """It keeps the versions that it names, or clients would ask with the same version again."""
    with pytest.raises(BadResponseError):
        read_api_keys(3, MOCK_ANSWER)
    repaired = repair(3, MOCK_ANSWER, 4)
    assert repaired == fallback_response(77, 2)
    assert read_api_keys(3, repaired) == [(18, 0, 2)]


@pytest.mark.parametrize("version", range(5))
def test_well_formed_answers_are_not_repaired(version: int) -> None:
    """An answer without error, or with error 35 and a v0 body, is returned as it is."""
    for frame in (v0((18, 0, 3), error=35), v0(error=35), v0((0, 0, 9))):
        assert repair(version, frame, 4) is frame


def test_the_minimum_of_produce_is_never_raised() -> None:
    """KAFKA-18659: librdkafka before 2.8 takes a higher minimum for a broker without record batches."""
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
    """Own ranges win, then dropped keys go, then maxima are capped; own keys that are missing follow at the end."""
    after = read_api_keys(0, intersect(0, v0(*entries), {0: 9}, {5}, {48: (0, 1)}))
    assert after == (expected if (48, 0, 1) in expected else [*expected, (48, 0, 1)])


def test_an_unchanged_answer_stays_byte_for_byte() -> None:
    """Nothing to cut, nothing changes."""
    frame = v0((0, 0, 9), (18, 0, 3))
    assert intersect(0, frame, {}, (), {}) == frame


def test_a_frame_without_error_code_is_refused() -> None:
    """Four bytes after the length are no answer."""
    for read in (error_code, lambda frame: read_api_keys(0, frame), lambda frame: repair(3, frame, 4)):
        with pytest.raises(BadResponseError):
            read(bytes.fromhex("000000040000004d"))


def test_our_own_request_reads_as_a_request() -> None:
    """What asks a broker for its versions is what a client would send."""
    frame = request_v0(5, "sluice")
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    assert (head.api.name, head.api.version, head.correlation_id, head.client_id) == ("ApiVersions", 0, 5, "sluice")
    assert head.body_at == len(frame)
