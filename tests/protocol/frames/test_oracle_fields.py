"""Single fields compared with the oracles: throttle times of all APIs, request fields that quotas need, ranges of API keys."""

import datetime
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from kio.schema.share_fetch.v1.request import ShareFetchRequest as ShareFetchRequestV1
from kio.schema.share_fetch.v2.request import ShareFetchRequest as ShareFetchRequestV2
from kio.serial import entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.layout import layout_of
from protocol.messages.api_versions import intersect
from protocol.messages.throttle_time import stamp, throttle_at
from protocol.request_head import read_request_head
from tests.support.frames import layout_codec
from tests.support.frames.message_strategies import bodies, frame_of, frames
from tests.support.frames.oracles import ORACLES, OracleError

FRAMES = Path(__file__).parents[2] / "vectors" / "frames"
STAMP_MS = 123456


def throttle_time_of(tree: Any) -> object:
    """Return the throttle time of a decoded response in milliseconds."""
    found = tree.get("throttle_time_ms", tree.get("throttle_time"))
    return found // datetime.timedelta(milliseconds=1) if isinstance(found, datetime.timedelta) else found


def test_stamped_answers_of_all_apis_decode_with_the_stamp(capsys: pytest.CaptureFixture[str]) -> None:
    """After the throttle time of an answer is set, every oracle that can read it finds the new value and no other change."""
    cases = json.loads((FRAMES / "throttle.json").read_text(encoding="utf-8"))["cases"]
    judged: Counter[str] = Counter()
    judged_pairs: set[tuple[int, int]] = set()
    for case in cases:
        api = API_VERSIONS[case["key"] << 16 | case["version"]]
        frame = bytearray.fromhex(case["frame"])
        at = throttle_at(api, frame)
        has_error = api.key == ApiKey.API_VERSIONS and frame[8:10] != b"\x00\x00"
        if at is None or "unknown_tags" in case or has_error:  # kafka-python reads the error of any ApiVersions version as a v0 body
            continue
        body_at = 8 + api.response_header_version
        for oracle in [oracle for oracle in ORACLES if oracle.covers(api.key, api.version)]:
            try:
                before = oracle.decode(api.key, api.version, bytes(frame), body_at)
            except OracleError:
                continue
            stamped = bytearray(frame)
            stamp(stamped, at, STAMP_MS)
            after = oracle.decode(api.key, api.version, bytes(stamped), body_at)
            assert throttle_time_of(after) == STAMP_MS, case["name"]
            throttle = "throttle_time_ms" if "throttle_time_ms" in before else "throttle_time"
            assert after | {throttle: 0} == before | {throttle: 0}, case["name"]
            judged[oracle.name] += 1
            judged_pairs.add((api.key, api.version))
    every = {(case["key"], case["version"]) for case in cases if case["at"] is not None}
    beyond = sorted(every - judged_pairs)
    with capsys.disabled():
        print(f"\nthrottle times judged by {dict(judged)}; versions that neither oracle decodes: {len(beyond)} of {len(every)}: ", end="")
        print(", ".join(f"{API_VERSIONS[key << 16 | version].name} v{version}" for key, version in beyond))
    assert len(judged_pairs) > 0.8 * len(every)


def request_apis(key: ApiKey) -> list[ApiVersion]:
    """Return all versions of an API."""
    return [api for api in API_VERSIONS.values() if api.key == key]


def request_frame(api: ApiVersion, body: bytes) -> bytes:
    """Return a frame of length, request header and body."""
    header = api.index.to_bytes(4, "big") + bytes(4) + b"\x00\x03app" + bytes(api.request_header_version == 2)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


@pytest.mark.parametrize("api", request_apis(ApiKey.PRODUCE), ids=lambda api: f"v{api.version}")
def test_produce_requests(api: ApiVersion) -> None:
    """The acks and the transactional id of a Produce request equal those of the oracles."""
    layout = layout_of(api.key, "request", api.version)

    @settings(max_examples=15, deadline=None)
    @given(body=bodies(layout))
    def check(body: Any) -> None:
        frame = request_frame(api, layout_codec.encode(layout, body))
        head = read_request_head(frame, 0, len(frame) - 4)
        assert head is not None
        for oracle in ORACLES:
            if oracle.covers(api.key, api.version, response=False):
                tree = oracle.decode(api.key, api.version, frame, head.body_at, response=False)
                assert (head.acks, head.transactional_id) == (tree["acks"], tree.get("transactional_id")), oracle.name

    check()


@pytest.mark.parametrize("api", request_apis(ApiKey.FETCH), ids=lambda api: f"v{api.version}")
def test_fetch_requests(api: ApiVersion) -> None:
    """The limits and, before v15, the replica id of a Fetch request equal those of the oracles."""
    layout = layout_of(api.key, "request", api.version)

    @settings(max_examples=15, deadline=None)
    @given(body=bodies(layout))
    def check(body: Any) -> None:
        if body.get("ClusterId", "") is None:
            del body["ClusterId"]  # null means absent: the field is not written, and kio does not read it
        frame = request_frame(api, layout_codec.encode(layout, body))
        head = read_request_head(frame, 0, len(frame) - 4)
        assert head is not None
        assert (head.max_wait_ms, head.min_bytes) == (body["MaxWaitMs"], body["MinBytes"])
        for oracle in ORACLES:
            if oracle.covers(api.key, api.version, response=False):
                tree = oracle.decode(api.key, api.version, frame, head.body_at, response=False)
                assert head.min_bytes == tree["min_bytes"]
                assert head.max_bytes == (tree["max_bytes"] if api.version >= 3 else None), oracle.name

    check()


@pytest.mark.parametrize("request_class", [ShareFetchRequestV1, ShareFetchRequestV2], ids=["v1", "v2"])
def test_share_fetch_requests(request_class: Any) -> None:
    """The limits of a ShareFetch request that kio wrote are read."""
    newer = {"share_acquire_mode": i8(0), "is_renew_ack": False} if request_class is ShareFetchRequestV2 else {}
    request = request_class(
        group_id="g", member_id="member", share_session_epoch=i32(3), max_wait=i32Timedelta.parse(datetime.timedelta(milliseconds=500)),
        min_bytes=i32(1), max_bytes=i32(1000), max_records=i32(9), batch_size=i32(9), topics=(), forgotten_topics_data=(), **newer,
    )  # fmt: skip
    api = API_VERSIONS[ApiKey.SHARE_FETCH << 16 | int(i16(request_class.__version__))]
    buffer = io.BytesIO()
    entity_writer(request_class)(buffer, request)
    frame = request_frame(api, buffer.getvalue())
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    assert (head.max_wait_ms, head.min_bytes, head.max_bytes) == (500, 1, 1000)
    assert head.max_bytes_at is not None
    assert frame[head.max_bytes_at : head.max_bytes_at + 4] == (1000).to_bytes(4, "big")


@pytest.mark.parametrize("api", request_apis(ApiKey.API_VERSIONS), ids=lambda api: f"v{api.version}")
def test_ranges_of_api_keys(api: ApiVersion) -> None:
    """Reducing the ranges of API keys and then decoding equals decoding and then reducing; features and throttle time do not change."""
    maximum, drop, own = {0: 9, 1: 3}, {4, 7}, {48: (0, 1)}

    @settings(max_examples=20, deadline=None)
    @given(frame=frames(api))
    def check(frame: bytes) -> None:
        after = intersect(api.version, frame, maximum, drop, own)
        for oracle in ORACLES:
            try:
                before = oracle.decode(api.key, api.version, frame, 8)
            except OracleError:
                continue
            if before["error_code"] == 35:
                assert after == frame
                continue
            found = oracle.decode(api.key, api.version, after, 8)
            keys = [(key["api_key"], key["min_version"], key["max_version"]) for key in before["api_keys"]]
            cut = [
                (key, *own[key]) if key in own else (key, low, min(high, maximum.get(key, high)))
                for key, low, high in keys
                if key not in drop
            ]
            expected = [(key, low, high) for key, low, high in cut if low <= high]
            expected += [(48, 0, 1)] if 48 not in [key for key, _, _ in keys] else []
            assert [(key["api_key"], key["min_version"], key["max_version"]) for key in found["api_keys"]] == expected
            assert found | {"api_keys": ()} == before | {"api_keys": ()}

    check()


def test_frames_of_the_model_are_framed_as_kafka_does() -> None:
    """The test helper that adds headers to generated bodies gives the bytes of a golden frame."""
    case = json.loads((FRAMES / "throttle.json").read_text(encoding="utf-8"))["cases"][0]
    frame = bytes.fromhex(case["frame"])
    api = API_VERSIONS[case["key"] << 16 | case["version"]]
    assert frame_of(api, frame[8 + api.response_header_version :], int.from_bytes(frame[4:8], "big", signed=True)) == frame
