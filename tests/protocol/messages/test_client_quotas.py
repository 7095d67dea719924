"""DescribeClientQuotas and AlterClientQuotas: requests and answers, written and read."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS
from protocol.errors import BadRequestError, BadResponseError
from protocol.limits import MAX_STRING_BYTES
from protocol.messages.client_quotas import (
    AlterResult,
    DescribeAnswer,
    FilterComponent,
    QuotaEntry,
    QuotaOp,
    alter_answer,
    alter_request,
    describe_answer,
    describe_request,
    read_alter_answer,
    read_alter_request,
    read_describe_answer,
    read_describe_request,
)
from tests.support.frames.config_frames import body_at
from tests.support.frames.oracles import ORACLES

FRAMES = json.loads((Path(__file__).parent.parent.parent / "vectors/frames/quotas48_49.json").read_text())["cases"]


def is_ours(case: dict[str, Any]) -> bool:
    """Whether Sluice's own client could have sent the request: it has a name, no unknown fields, and no value beside a removal."""
    if case["type"] != "request" or case.get("unknown_tags") or case["client_id"] is None:
        return False
    ops = [op for entry in case["body"].get("entries", []) for op in entry["ops"]]
    return not any(op["remove"] and str(op["value"]) not in ("0", "0.0") for op in ops)


ALL_REQUESTS = [case for case in FRAMES if case["type"] == "request"]
REQUESTS = [case for case in FRAMES if is_ours(case)]
ANSWERS = [case for case in FRAMES if case["type"] == "response"]


def names(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases]


def entity_of(parts: list[dict[str, Any]]) -> tuple[tuple[str, str | None], ...]:
    return tuple((part["entityType"], part["entityName"]) for part in parts)


def number(value: float | str) -> float:
    return float(value)


@pytest.mark.parametrize("case", names(REQUESTS))
def test_requests_are_written_as_kafkas_classes_write_them(case: dict[str, Any]) -> None:
    """Requests equal those of Kafka's classes byte for byte."""
    body, version = case["body"], case["version"]
    if case["key"] == 48:
        components = [FilterComponent(one["entityType"], one["matchType"], one["match"]) for one in body["components"]]
        written = describe_request(version, case["correlation_id"], case["client_id"], components, strict=body["strict"])
    else:
        entries = [
            (entity_of(entry["entity"]), [QuotaOp(op["key"], None if op["remove"] else number(op["value"])) for op in entry["ops"]])
            for entry in body["entries"]
        ]
        written = alter_request(version, case["correlation_id"], case["client_id"], entries, validate_only=body["validateOnly"])
    assert written.hex() == case["frame"]


@pytest.mark.parametrize("case", names(ANSWERS))
def test_answers_are_read_as_kafkas_classes_read_them(case: dict[str, Any]) -> None:
    """Names, values, codes and texts of answers are read as by Kafka's classes, and unknown tagged fields are skipped."""
    body, frame = case["body"], bytes.fromhex(case["frame"])
    if case["key"] == 49:
        expected = [(entity_of(one["entity"]), one["errorCode"], one["errorMessage"]) for one in body["entries"]]
        assert [tuple(result) for result in read_alter_answer(case["version"], frame)] == expected
        return
    found = read_describe_answer(case["version"], frame)
    assert (found.error_code, found.error_message) == (body["errorCode"], body["errorMessage"])
    if body["entries"] is None:
        assert found.entries is None
        return
    assert found.entries is not None
    for entry, expected_entry in zip(found.entries, body["entries"], strict=True):
        assert entry.entity == entity_of(expected_entry["entity"])
        for one in expected_entry["values"]:
            value, wanted = entry.values[one["key"]], number(one["value"])
            duplicates = sum(other["key"] == one["key"] for other in expected_entry["values"])
            assert value == wanted or (math.isnan(value) and math.isnan(wanted)) or duplicates > 1


@given(st.sampled_from(ANSWERS), st.data())
def test_any_bytes_are_an_answer_or_an_error(case: dict[str, Any], data: st.DataObject) -> None:
    """A truncated or changed answer is read or raises the error of answers, nothing else."""
    frame = bytearray(bytes.fromhex(case["frame"]))
    del frame[data.draw(st.integers(8, len(frame))) :]
    if len(frame) > 12:
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame[:4] = (len(frame) - 4).to_bytes(4)
    read = read_describe_answer if case["key"] == 48 else read_alter_answer
    with contextlib.suppress(BadResponseError):
        read(case["version"], bytes(frame))


def same_number(found: float, wanted: float) -> bool:
    return found == wanted or (math.isnan(found) and math.isnan(wanted))


@pytest.mark.parametrize("case", names(ALL_REQUESTS))
def test_requests_are_read_as_kafkas_classes_read_them(case: dict[str, Any]) -> None:
    """Types, names, match types, keys, values and flags of requests are read as by Kafka's classes, and unknown tagged fields are
    skipped.
    """
    body, frame, version = case["body"], bytes.fromhex(case["frame"]), case["version"]
    if case["key"] == 48:
        described = read_describe_request(version, frame, body_at(frame))
        wanted = [(one["entityType"], one["matchType"], one["match"]) for one in body["components"]]
        assert ([tuple(one) for one in described.components], described.strict) == (wanted, body["strict"])
        return
    altered = read_alter_request(version, frame, body_at(frame))
    assert altered.validate_only == body["validateOnly"]
    for (entity, ops), entry in zip(altered.entries, body["entries"], strict=True):
        assert entity == entity_of(entry["entity"])
        for op, one in zip(ops, entry["ops"], strict=True):
            assert (op.key, op.remove) == (one["key"], one["remove"])
            assert same_number(op.value, number(one["value"]))


def has_duplicates(case: dict[str, Any]) -> bool:
    """Whether an entity has a key twice; no broker writes that."""
    return any(
        len({one["key"] for one in entry["values"]}) < len(entry["values"])
        for entry in case["body"].get("entries") or []
        if "values" in entry
    )


WRITABLE = [case for case in ANSWERS if not case.get("unknown_tags") and not has_duplicates(case)]


@pytest.mark.parametrize("case", names(WRITABLE))
def test_answers_are_written_as_kafkas_classes_write_them(case: dict[str, Any]) -> None:
    """Answers equal those of Kafka's classes byte for byte."""
    body, version = case["body"], case["version"]
    if case["key"] == 49:
        results = [AlterResult(entity_of(one["entity"]), one["errorCode"], one["errorMessage"]) for one in body["entries"]]
        written = alter_answer(version, case["correlation_id"], results, throttle_ms=body["throttleTimeMs"])
    else:
        entries = body["entries"]
        if entries is not None:
            entries = [
                QuotaEntry(entity_of(entry["entity"]), {one["key"]: number(one["value"]) for one in entry["values"]}) for entry in entries
            ]
        answer = DescribeAnswer(body["errorCode"], body["errorMessage"], entries)
        written = describe_answer(version, case["correlation_id"], answer, throttle_ms=body["throttleTimeMs"])
    assert written.hex() == case["frame"]


TEXTS = st.text(max_size=12) | st.sampled_from(["user", "client-id", "ip", "<default>", ""])
ENTITIES = st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=3).map(tuple)
VALUES = st.floats(allow_nan=False)
VERSION = st.sampled_from([0, 1])


@given(
    VERSION, st.lists(st.tuples(ENTITIES, st.lists(st.builds(QuotaOp, TEXTS, st.none() | VALUES), max_size=3)), max_size=3), st.booleans()
)
def test_what_a_client_asks_is_what_is_read(version: int, entries: list[Any], validate_only: bool) -> None:
    """A request of Sluice's codec reads back unchanged, and kio and kafka-python read the same entities."""
    frame = alter_request(version, 7, "c", entries, validate_only=validate_only)
    found = read_alter_request(version, frame, body_at(frame))
    assert found.validate_only == validate_only
    assert found.entries == [(entity, [(op.key, op.value or 0.0, op.value is None) for op in ops]) for entity, ops in entries]
    for oracle in ORACLES:
        if oracle.covers(49, version, response=False):
            assert len(oracle.decode(49, version, frame, body_at(frame), response=False)["entries"]) == len(entries)


@given(VERSION, st.lists(st.builds(AlterResult, ENTITIES, st.integers(-1, 100), st.none() | TEXTS), max_size=4), st.integers(0, 2**31 - 1))
def test_what_is_answered_to_a_change_is_what_others_read(version: int, results: list[AlterResult], throttle_ms: int) -> None:
    """Sluice's own reader, kio and kafka-python read the results that were written."""
    frame = alter_answer(version, 7, results, throttle_ms=throttle_ms)
    assert read_alter_answer(version, frame) == results
    at = 9 if API_VERSIONS[49 << 16 | version].response_header_version else 8
    for oracle in ORACLES:
        if oracle.covers(49, version):
            found = [one["error_message"] for one in oracle.decode(49, version, frame, at)["entries"]]
            assert found == [result.error_message for result in results], oracle.name


def test_texts_too_long_for_the_wire_are_cut() -> None:
    """An error text that is too long for the wire is truncated, and the answer stays readable."""
    name = "\ufffd" * MAX_STRING_BYTES
    for version in (0, 1):
        (result,) = read_alter_answer(version, alter_answer(version, 1, [AlterResult((("user", name),), 42, "Empty " + name)]))
        assert result.error_message is not None
        assert result.error_message.startswith("Empty \ufffd")
        assert MAX_STRING_BYTES - 3 < len(result.error_message.encode()) <= MAX_STRING_BYTES


@pytest.mark.parametrize("version", [0, 1])
def test_counts_from_the_wire_size_nothing(version: int) -> None:
    """An array that is null or announces more elements than bytes are left is refused before anything is allocated."""
    huge, null = (b"\xff\xff\xff\xff\x07", b"\x00") if version else (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")
    for count in (huge, null):
        for read in (read_describe_request, read_alter_request):
            with pytest.raises(BadRequestError):
                read(version, count + b"\x00" * 8, 0)


@given(st.sampled_from(ALL_REQUESTS), st.data())
def test_any_bytes_are_a_request_or_an_error(case: dict[str, Any], data: st.DataObject) -> None:
    """A truncated or changed request is read or raises the error of requests, nothing else."""
    frame = bytearray(bytes.fromhex(case["frame"]))
    at = body_at(bytes(frame))
    del frame[data.draw(st.integers(at, len(frame))) :]
    if len(frame) > at:
        frame[data.draw(st.integers(at, len(frame) - 1))] = data.draw(st.integers(0, 255))
    read = read_describe_request if case["key"] == 48 else read_alter_request
    with contextlib.suppress(BadRequestError):
        read(case["version"], bytes(frame), at)
