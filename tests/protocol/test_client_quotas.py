"""DescribeClientQuotas and AlterClientQuotas, as clients write and read them."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import BadResponseError
from protocol.messages.client_quotas import (
    FilterComponent,
    QuotaOp,
    alter_request,
    describe_request,
    read_alter_answer,
    read_describe_answer,
)

FRAMES = json.loads((Path(__file__).parent.parent / "vectors/frames/quotas48_49.json").read_text())["cases"]


def is_ours(case: dict[str, Any]) -> bool:
    """Whether a client of ours could have sent it: a name, no unknown fields, no value beside a removal."""
    if case["type"] != "request" or case.get("unknown_tags") or case["client_id"] is None:
        return False
    ops = [op for entry in case["body"].get("entries", []) for op in entry["ops"]]
    return not any(op["remove"] and str(op["value"]) not in ("0", "0.0") for op in ops)


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
    """Byte for byte."""
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
    """Names, values, codes and texts; unknown tagged fields are passed over."""
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
    """Cut or changed frames are read or refused, nothing else."""
    frame = bytearray(bytes.fromhex(case["frame"]))
    del frame[data.draw(st.integers(8, len(frame))) :]
    if len(frame) > 12:
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame[:4] = (len(frame) - 4).to_bytes(4)
    read = read_describe_answer if case["key"] == 48 else read_alter_answer
    with contextlib.suppress(BadResponseError):
        read(case["version"], bytes(frame))
