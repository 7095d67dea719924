"""The replay of whole files compared with numbers that Kafka's own classes printed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.replay.check import check_decisions, check_samples
from pipeline.replay.decisions import NO_CAP, Decisions, Sensor, decide
from pipeline.replay.findings import Findings
from pipeline.replay.rows import NOT_LISTED, Rows
from pipeline.replay.unpacking import unpack
from quota.entity import UNLIMITED
from tests.support.metering import metering_rows
from tests.support.metering.metering_rows import Event, samples_table

VECTORS = Path(__file__).parents[2] / "vectors" / "traces"


def cases(name: str) -> list[dict[str, Any]]:
    content = json.loads((VECTORS / name).read_text())
    columns = content.get("columns")
    if columns:
        for case in content["cases"]:
            case["events"] = [dict(zip(columns, event, strict=True)) for event in case["events"]]
    made: list[dict[str, Any]] = content["cases"]
    return made


def replayed(sensors: dict[Any, metering_rows.Sensor], sensor: Sensor) -> tuple[Rows, Decisions, Findings]:
    rows = unpack(samples_table([row.as_dict() for one in sensors.values() for row in one.rows]))
    findings = Findings()
    judged = np.ones(len(rows.n), np.bool_)
    check_samples(rows, sensor, judged, findings)
    decided = decide(rows, sensor)
    check_decisions(rows, decided, sensor, judged, findings)
    return rows, decided, findings


def test_rates_windows_and_waits_are_kafkas() -> None:
    """For traces of records only, each rate, window and wait of the replay equals that of Kafka's classes to the last bit."""
    judged = 0
    for case in cases("rate.json"):
        events = case["events"]
        is_plain = all(event["op"] == "r" and float(event["value"]).is_integer() for event in events)
        if not is_plain or case["bound"] is None:
            continue
        sensor = metering_rows.Sensor(0, case["bound"], num_samples=case["samples"], window_ms=case["window_ms"])
        for seq, event in enumerate(events):
            sensor.take(Event(0, event["t_ms"], int(event["value"])), seq)
        rows, decided, findings = replayed({0: sensor}, Sensor(case["samples"], case["window_ms"], NO_CAP, is_request_time=False))
        assert findings.total == 0, (case["name"], findings.first)
        assert decided.observed.tolist() == [event["rate_per_s"] for event in events], case["name"]
        assert decided.window_ms.tolist() == [event["window_size_ms"] for event in events], case["name"]
        assert decided.violated.tolist() == [event["violated"] for event in events], case["name"]
        assert rows.throttle_ms[rows.throttle_ms != NOT_LISTED].tolist() == [e["throttle_ms_int32"] for e in events if e["violated"]]
        judged += len(events)
    assert judged == 75


def test_waits_of_whole_managers_are_kafkas() -> None:
    """For produce and fetch, with un-recorded values, each wait of the replay equals that of Kafka's quota managers, also for shared
    groups.
    """
    judged: dict[str, int] = {}
    for case in cases("client-quota-manager.json"):
        if not case["name"].startswith("rnd-") or case["manager"] not in ("produce", "fetch"):
            continue  # request times of the vectors are not whole nanoseconds
        window_ms = case["window_s"] * 1_000
        sensors, reported = _taken(case, window_ms)
        _, decided, findings = replayed(sensors, Sensor(case["samples"], window_ms, NO_CAP, is_request_time=False))
        assert findings.total == 0, (case["name"], findings.first)
        assert decided.throttle_ms.tolist() == [wait for *_, wait in sorted(reported)], case["name"]
        judged[case["manager"]] = judged.get(case["manager"], 0) + len(reported)
    assert judged == {"produce": 530, "fetch": 570}


def _taken(case: dict[str, Any], window_ms: int) -> tuple[dict[Any, metering_rows.Sensor], list[tuple[int, int, int]]]:
    """Return sensors after the events of a case, and (group, number, Kafka's wait) of each event."""
    sensors: dict[Any, metering_rows.Sensor] = {}
    reported: list[tuple[int, int, int]] = []
    for event, group in _recorded(case):
        if group not in sensors:
            sensors[group] = metering_rows.Sensor(len(sensors), UNLIMITED, num_samples=case["samples"], window_ms=window_ms)
        sensor = sensors[group]
        is_record = event["op"] == "record"
        if is_record:
            sensor.group.update_bound(UNLIMITED if event["limit"] is None else event["limit"])
        value = int(event["value"])
        sensor.take(Event(sensor.ref, event["t"], value if is_record else -value, is_record), len(reported))
        reported.append((sensor.ref, len(reported), event["throttle_ms"] if is_record else 0))
    return sensors, reported


def _recorded(case: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    tags: dict[tuple[str, str], Any] = {}
    for event in case["events"]:
        client = (event.get("user", ""), event.get("client_id", ""))
        if event["op"] == "record":
            if event["enabled"]:
                tags[client] = tuple(event["tags"])
                yield event, tags[client]
        elif event["op"] == "unrecord" and client in tags:
            yield event, tags[client]
