"""On any bytes a parser returns or raises ProtocolError, and what it allocates is proportional to the bytes, not to numbers in them."""

import contextlib
import itertools
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, ThrottlePosition
from protocol.errors import ProtocolError
from protocol.headers import response_header_len
from protocol.messages import api_versions, describe_configs, sasl
from protocol.messages.addresses import splice_report
from protocol.messages.fetch.tail import find_tail_in_steps, tail_is_bare
from protocol.messages.fetch.walker import FetchWalker
from protocol.messages.metadata import read_topology
from protocol.messages.node_endpoints import blank_endpoints, tail_has_endpoints
from protocol.messages.produce import walk_produce
from protocol.messages.throttle_time import throttle_at
from protocol.proxy_protocol import ProxyHeaderReader
from protocol.request_head import read_request_head
from protocol.steps import finished
from tests.support.scripted.proxy_headers import SIGNATURE, tlv, v1_header, v2_header, v2_local

FRAMES = Path(__file__).parents[1] / "vectors" / "frames"
ALLOCATION_LIMIT = 64 * 1024  # for inputs of at most a few kilobytes; a count on the wire may be 2^31
BYTES_PER_BYTE = 200  # an array element of one byte may become a Python object

EDGES = [-(2**31), -2, -1, 0, 1, 0x7FFF, 0x10000, 2**31 - 1]
VARINT_EDGES = [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x00", b"\xff\x7f"]


class Target(NamedTuple):
    """A parser, and the frames that it reads."""

    parse: Callable[[ApiVersion, bytes], object]
    apis: list[ApiVersion]
    is_request: bool = False


def walk_in_pieces(api: ApiVersion, frame: bytes) -> None:
    """Feed a walker three bytes at a time."""
    walker = FetchWalker(api, len(frame))
    for at in range(0, len(frame), 3):
        walker.feed(frame, at, min(at + 3, len(frame)))


def apis_of(*keys: int) -> list[ApiVersion]:
    """Return all versions of some APIs."""
    return [api for api in API_VERSIONS.values() if api.key in keys]


def flexible_apis_of(*keys: int) -> list[ApiVersion]:
    """Return the flexible versions of some APIs."""
    return [api for api in apis_of(*keys) if api.flexible]


def resolve(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    """Return an address for every second node id."""
    return ("sluice.example", 9093) if node_id % 2 else None


TARGETS = {
    "request head": Target(lambda _, frame: read_request_head(frame, 0, len(frame) - 4), list(API_VERSIONS.values()), is_request=True),
    "request head of a vendor": Target(
        lambda _, frame: read_request_head(frame, 0, len(frame) - 4, unknown_apis_pass=True), list(API_VERSIONS.values()), is_request=True
    ),
    "response header": Target(lambda api, frame: response_header_len(api, frame, 0), list(API_VERSIONS.values())),
    "throttle time": Target(throttle_at, [api for api in API_VERSIONS.values() if api.throttle is not ThrottlePosition.NONE]),
    "addresses": Target(lambda api, frame: splice_report(api, frame, resolve), [api for api in API_VERSIONS.values() if api.splice]),
    "produce": Target(lambda api, frame: walk_produce(api, frame, 0, len(frame)), flexible_apis_of(ApiKey.PRODUCE)),
    "fetch": Target(lambda api, frame: finished(find_tail_in_steps(api, frame)), flexible_apis_of(ApiKey.FETCH, ApiKey.SHARE_FETCH)),
    "bare fetch": Target(lambda api, frame: tail_is_bare(api, frame, 0, len(frame)), flexible_apis_of(ApiKey.FETCH, ApiKey.SHARE_FETCH)),
    "fetch in pieces": Target(walk_in_pieces, flexible_apis_of(ApiKey.FETCH, ApiKey.SHARE_FETCH)),
    "endpoints": Target(lambda api, frame: tail_has_endpoints(api, frame[8:]), flexible_apis_of(ApiKey.FETCH, ApiKey.SHARE_FETCH)),
    "blanked": Target(lambda api, frame: blank_endpoints(api, frame[8:], resolve), flexible_apis_of(ApiKey.FETCH, ApiKey.SHARE_FETCH)),
    "api keys": Target(lambda api, frame: api_versions.read_api_keys(api.version, frame), apis_of(ApiKey.API_VERSIONS)),
    "intersect": Target(
        lambda api, frame: api_versions.intersect(api.version, frame, {0: 9}, {1}, {48: (0, 1)}), apis_of(ApiKey.API_VERSIONS)
    ),
    "repair": Target(lambda api, frame: api_versions.repair(api.version, frame, 4), apis_of(ApiKey.API_VERSIONS)),
    "topology": Target(read_topology, apis_of(ApiKey.METADATA)),
    "sasl answer": Target(sasl.read_authenticate_answer, apis_of(ApiKey.SASL_AUTHENTICATE)),
    "sasl token": Target(lambda api, frame: sasl.find_token(api, frame, 12), apis_of(ApiKey.SASL_AUTHENTICATE), is_request=True),
    "sasl mechanism": Target(lambda _, frame: sasl.read_mechanism(frame, 12), apis_of(ApiKey.SASL_HANDSHAKE), is_request=True),
    "redact": Target(describe_configs.redact, apis_of(ApiKey.DESCRIBE_CONFIGS)),
}


def golden(name: str, *, member: str = "frame") -> dict[tuple[int, int], list[bytes]]:
    """Return the frames of a golden file by API key and version."""
    found: dict[tuple[int, int], list[bytes]] = {}
    for case in json.loads((FRAMES / name).read_text(encoding="utf-8"))["cases"]:
        if "key" in case or name == "apiversions.json":
            found.setdefault((case.get("key", 18), case["version"]), []).append(bytes.fromhex(case[member]))
    return found


REQUESTS = golden("requests.json")
RESPONSES = golden("throttle.json")
for more in (golden("addresses.json"), golden("apiversions.json", member="response")):
    for pair, of_pair in more.items():
        RESPONSES.setdefault(pair, []).extend(of_pair)


@st.composite
def hostile(draw: st.DrawFn, api: ApiVersion, *, is_request: bool) -> bytes:
    """Return random bytes after a valid head, or a real frame with numbers overwritten by extreme values, truncated or extended."""
    seeds = (REQUESTS if is_request else RESPONSES).get((api.key, api.version), [])
    head = struct.pack(">hh", api.key, api.version) if is_request else b""
    noise = st.binary(max_size=200).map(lambda tail: bytes(4) + head + bytes(4) + tail)
    frame = bytearray(draw(noise | st.sampled_from(seeds) if seeds else noise))
    for _ in range(draw(st.integers(0, 3))):
        patch = draw(st.sampled_from([struct.pack(">i", edge) for edge in EDGES] + VARINT_EDGES) | st.binary(min_size=1, max_size=2))
        at = draw(st.integers(8, max(8, len(frame))))
        frame[at : at + len(patch)] = patch
    del frame[draw(st.integers(12, 12 + len(frame))) :]
    frame[:4] = struct.pack(">i", len(frame) - 4)
    return bytes(frame)


def parse(target: Target, api: ApiVersion, frame: bytes) -> None:
    """Call a parser; let only ProtocolError pass."""
    with contextlib.suppress(ProtocolError):
        target.parse(api, frame)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_accepted_or_raise_a_protocol_error(name: str) -> None:
    """On any bytes a parser returns or raises ProtocolError, and its peak memory stays small whatever the numbers in the frame are."""
    target = TARGETS[name]
    peaks: list[int] = []

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        api = data.draw(st.sampled_from(target.apis))
        frame = data.draw(hostile(api, is_request=target.is_request))
        parse(target, api, frame)  # run once before the measurement, so that one-time allocations do not count
        tracemalloc.start()
        try:
            parse(target, api, frame)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert peaks[-1] <= ALLOCATION_LIMIT + BYTES_PER_BYTE * len(frame)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_every_cut_of_real_frames_is_accepted_or_raises_a_protocol_error(name: str) -> None:
    """A real frame that is truncated anywhere, with its length adjusted, is accepted or raises ProtocolError."""
    target = TARGETS[name]
    seeds = REQUESTS if target.is_request else RESPONSES
    for api in target.apis:
        for frame in itertools.islice(seeds.get((api.key, api.version), []), 2):
            for end in range(12, min(len(frame), 400)):
                parse(target, api, struct.pack(">i", end - 4) + frame[4:end])


@pytest.mark.parametrize("name", ["request head", "throttle time", "response header"])
def test_every_prefix_of_real_frames_waits_for_more(name: str) -> None:
    """A prefix of a real frame is never an error: a parser returns the same result as for the whole frame, or asks for more bytes."""
    target = TARGETS[name]
    for api in target.apis:
        for frame in itertools.islice((REQUESTS if target.is_request else RESPONSES).get((api.key, api.version), []), 2):
            for end in range(12, min(len(frame), 400)):
                if target.is_request:
                    head = read_request_head(frame[:end], 0, len(frame) - 4)
                    assert head is None or head.head_len <= end
                else:
                    target.parse(api, frame[:end])


@pytest.mark.parametrize(
    "name",
    ["addresses", "throttle time", "topology", "redact", "produce", "fetch", "fetch in pieces", "api keys", "intersect", "endpoints"],
)
@pytest.mark.parametrize(
    "count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08"], ids=["int32", "varint", "long-varint"]
)
def test_a_huge_count_ends_with_the_bytes(name: str, count: bytes) -> None:
    """A parser does not wait for two billion announced elements when the frame has no bytes for them."""
    target = TARGETS[name]
    for api in target.apis:
        for at in range(8, 40):
            body = bytearray(80)
            body[at : at + len(count)] = count
            body[:4] = struct.pack(">i", len(body) - 4)
            parse(target, api, bytes(body))


PROXY_SEEDS = [
    v1_header(("192.0.2.7", 56324)),
    v1_header(("2001:db8::7", 56324), ("::1", 9092)),
    v2_header(("192.0.2.7", 56324), tlvs=tlv(4, bytes(40))),
    v2_header(("2001:db8::7", 56324), ("::1", 9092)),
    v2_local(),
]
"""Headers of the PROXY protocol, which precede all frames."""


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_bytes_in_front_are_a_proxy_header_or_raise_a_protocol_error(data: st.DataObject) -> None:
    """On any bytes the PROXY header reader returns or raises ProxyHeaderError, and never consumes more than it was given."""
    header = bytearray(data.draw(st.sampled_from(PROXY_SEEDS) | st.binary(max_size=60).map(lambda tail: SIGNATURE + tail)))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(header)))
        patch = data.draw(st.binary(min_size=1, max_size=3))
        header[at : at + len(patch)] = patch
    del header[data.draw(st.integers(0, len(header))) or len(header) :]
    step = data.draw(st.integers(1, 40))
    reader = ProxyHeaderReader()
    tracemalloc.start()
    try:
        with contextlib.suppress(ProtocolError):
            for at in range(0, len(header), step):
                piece = bytes(header[at : at + step])
                taken = reader.feed(piece)
                assert 0 <= taken <= len(piece)
                assert (taken == len(piece)) or reader.header is not None
        assert tracemalloc.get_traced_memory()[0] <= ALLOCATION_LIMIT
    finally:
        tracemalloc.stop()
