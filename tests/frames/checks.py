"""The checks of golden frame files: one per kind of case, chosen by `format`. A check raises AssertionError with the difference."""

from collections.abc import Callable
from typing import Any

from protocol.api_keys import API_VERSIONS, ApiVersion, Treatment
from protocol.layout import layout_of
from protocol.messages import api_versions
from protocol.messages.addresses import splice_report
from protocol.messages.fetch.tail import find_tail_in_steps
from protocol.messages.fetch.walker import FetchWalker
from protocol.messages.node_endpoints import tail_has_endpoints
from protocol.messages.produce import FLEXIBLE_SINCE, walk_produce
from protocol.messages.throttle_time import stamp, throttle_at
from protocol.request_head import read_request_head
from protocol.steps import finished
from tests.support.frames import layout_codec

Case = dict[str, Any]
STAMP_MS = 123456
BELOW_BUSY_MS = 4000


def api_of(case: Case) -> ApiVersion:
    """Return the API and the version of a case."""
    return API_VERSIONS[case["key"] << 16 | case["version"]]


def same(what: str, found: object, expected: object) -> None:
    """Fail with both values unless they are equal."""
    assert found == expected, f"{what} is {found!r:.200}, expected {expected!r:.200}"


def check_addresses(case: Case) -> None:
    """The host and port of every mapped node id are replaced, and nothing else changes."""
    frame = bytes.fromhex(case["frame"])
    addresses = {int(node_id): (host, port) for node_id, (host, port) in case["map"].items()}
    report = splice_report(api_of(case), frame, lambda node_id, _host, _port: addresses.get(node_id))
    same("frame", report.frame.hex(), case["after"])
    same("node ids", list(report.node_ids), case["ids"])
    same("unmapped ids", list(report.unmapped), case["unmapped"])
    same("controllers", report.controllers, case.get("controllers", False))
    _check_walks(case, frame)


def _check_walks(case: Case, frame: bytes) -> None:
    """The walkers that read Produce and Fetch answers without splicing them give the same result as the splice."""
    api = api_of(case)
    if case["key"] == 0 and case["version"] >= FLEXIBLE_SINCE:
        at, _ = walk_produce(api, frame, 0, len(frame))
        same("throttle time at", at, throttle_at(api, frame))
    if case["key"] in (1, 78) and api.splice:
        tail_at = finished(find_tail_in_steps(api, frame))
        walker = FetchWalker(api, len(frame))
        same("bytes that pass", sum(walker.feed(frame, at, at + 1) for at in range(len(frame))), tail_at)
        same("endpoints", tail_has_endpoints(api, frame[tail_at:]), bool(case["ids"]))


def check_throttle(case: Case) -> None:
    """throttle_time_ms is found and raised in place; an answer without the field has no place."""
    frame = bytes.fromhex(case["frame"])
    at = throttle_at(api_of(case), frame)
    same("at", at, case["at"])
    if at is None:
        return
    same("throttle", int.from_bytes(frame[at : at + 4], "big", signed=True), case["throttle"])
    stamped = bytearray(frame)
    if case["throttle"] > BELOW_BUSY_MS:
        same("lowered", stamp(stamped, at, BELOW_BUSY_MS), False)
        same("frame after a lower stamp", stamped.hex(), case["frame"])
    same("raised", stamp(stamped, at, STAMP_MS), True)
    same("stamped", stamped.hex(), case["stamped"])


def check_request(case: Case) -> None:
    """The header and, for Produce and Fetch, the first body fields are read with their offsets."""
    frame = bytes.fromhex(case["frame"])
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None, "the head of a whole frame is not there"
    same("header version", head.api.request_header_version, case["header_version"])
    same("header length", head.body_at - 4, case["header_len"])
    same("known", head.api is API_VERSIONS.get(case["key"] << 16 | case["version"]), "future" not in case["name"])
    fields = head.__slots__ if case["key"] in (0, 1) else ("correlation_id", "client_id", "body_at")
    for name in fields:
        if name in case:
            same(name, getattr(head, name), case[name])


def check_api_versions(case: Case) -> None:
    """Answers of real brokers are read, reduced and, for unknown versions, written as Kafka writes them."""
    frame = bytes.fromhex(case["response"])
    version = case["version"]
    if "expected" in case:
        maximum = {int(key): highest for key, highest in case["maximum"].items()}
        own = {int(key): (lowest, highest) for key, (lowest, highest) in case["own"].items()}
        after = api_versions.intersect(version, frame, maximum, case["drop"], own)
        same("frame", after.hex(), case["expected"])
        same("ranges", [list(entry) for entry in api_versions.read_api_keys(version, after)], case["expected_api_keys"])
        return
    same("error code", api_versions.error_code(frame), case["error_code"])
    found = [list(entry) for entry in api_versions.read_api_keys(version, frame)]
    same("ranges", found, case["api_keys"])
    same("repaired", api_versions.repair(version, frame, 4), frame)
    if case["error_code"] == api_versions.UNSUPPORTED_VERSION:
        same("intersected", api_versions.intersect(version, frame, {}, {18}, {48: (0, 1)}), frame)
        if found:
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            same("written", api_versions.fallback_response(correlation_id, found[0][2]).hex(), case["response"])


def check_client_quotas(case: Case) -> None:
    """Requests and answers of APIs 48 and 49 are read from the field tables as Kafka reads them, and the proxy forwards them."""
    frame = bytes.fromhex(case["frame"])
    api = api_of(case)
    same("treatment", api.treatment, Treatment.PASS)
    if case["type"] == "request":
        head = read_request_head(frame, 0, len(frame) - 4)
        assert head is not None, "the head of a whole frame is not there"
        same("correlation id", head.correlation_id, case["correlation_id"])
        same("client id", head.client_id, case["client_id"])
        body_at = head.body_at
    else:
        found = throttle_at(api, frame)
        assert found is not None, "no throttle time"
        same("throttle time", int.from_bytes(frame[found : found + 4], "big", signed=True), case["body"]["throttleTimeMs"])
        body_at = found  # it is the first field
    decoded, end = layout_codec.decode(layout_of(case["key"], case["type"], case["version"]), frame, body_at)
    same("end", end, len(frame))
    same("body", layout_codec.kafka_json(decoded), case["body"])


CHECKS: dict[str, Callable[[Case], None]] = {
    "addresses/1": check_addresses,
    "addresses-real/1": check_addresses,
    "throttle/1": check_throttle,
    "requests/1": check_request,
    "apiversions/1": check_api_versions,
    "quotas48_49/1": check_client_quotas,
}
"""The check for each case of a file, by the file's `format`."""
