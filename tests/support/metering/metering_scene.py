"""A short run of a proxy: clients send, wait when throttled, and are metered; the input of reports and roll-ups.

`python -m tests.support.metering.metering_scene DIR [MINUTES]` writes one. No code of the proxy is used; `quota` decides.
"""

import heapq
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.metering.metering_directory import counts_of_types, write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID, Event, Sensor

START_MS = 1_795_262_400_000  # 2026-11-21 12:00 UTC, on the hour
UNLIMITED = 9.223372036854775807e18


@dataclass
class Client:
    """A client that produces or fetches: `connections`, `size` bytes per request, `think_ms` after each answer, from `begin_s` to `end_s`.

    Attributes:
        group: the name of the sensor, which clients with the same name share.
        in_flight: requests that a connection sends at once; their answers arrive at intervals of a millisecond, whatever the waits.
    """

    user: str
    client_id: str
    kind: str
    bound: float
    size: int
    think_ms: int
    connections: int = 1
    begin_s: float = 0.0
    end_s: float = 1e9
    group: str | None = None
    in_flight: int = 1


@dataclass
class Meter:
    """The rows of one run that are not yet written."""

    usage: dict[tuple[int, str, int], dict[str, int]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def note(self, ref: int, client: Client, now_ms: int, size: int, throttle_ms: int, handler_ns: int) -> None:
        row = self.usage.setdefault((ref, client.kind, now_ms // 1_000 * 1_000), dict.fromkeys(COUNTS, 0))
        row["requests"] += 1
        produced = client.kind == "produce"
        row["produce_bytes" if produced else "fetch_bytes"] += size
        row["request_bytes"] += size + 60 if produced else 90
        row["response_bytes"] += 50 if produced else size + 60
        row["handler_ns"] += handler_ns
        row["throttled_requests"] += throttle_ms > 0
        row["throttle_ms"] += throttle_ms
        row["waited_requests"] += throttle_ms > 0
        row["waited_ms"] += throttle_ms
        row["connections_open"] = client.connections


COUNTS = (
    "requests",
    "request_bytes",
    "response_bytes",
    "produce_bytes",
    "fetch_bytes",
    "handler_ns",
    "throttled_requests",
    "throttle_ms",
    "waited_requests",
    "waited_ms",
    "connections_opened",
    "connections_open",
)


def cast() -> list[Client]:
    """Return some teams: one far over its quota, one in bursts, some with little load, one that shares a sensor."""
    return [
        Client("orders", "checkout", "produce", 400_000.0, 9_000, 45, 2),
        Client("orders", "refunds", "produce", 200_000.0, 4_000, 300),
        Client("clicks", "tracker", "produce", 600_000.0, 30_000, 20, 3),
        Client("clicks", "replay", "produce", 250_000.0, 60_000, 60, 2, begin_s=60, end_s=200),
        Client("lake", "loader", "fetch", 1_500_000.0, 250_000, 90, 2),
        Client("lake", "backfill", "fetch", 500_000.0, 200_000, 70, 2, begin_s=30),
        Client("audit", "audit-log", "produce", UNLIMITED, 2_000, 400),
        Client("search", "indexer", "fetch", 800_000.0, 50_000, 120),
    ]


def write_scene(
    directory: Path,
    seconds: int = 120,
    *,
    clients: Sequence[Client] | None = None,
    file_set_s: int = 300,
    seed: int = 7,
    start_ms: int = START_MS,
    mutate: Callable[[dict[str, list[dict[str, Any]]]], None] = lambda _tables: None,
    trace: bool = False,
) -> Path:
    """Write one run of `seconds`; every `file_set_s`, and at each full hour, a new file set; return the directory.

    Args:
        trace: write level `trace`: every decision with its connection.
        mutate: may change the rows of each file set before they are written; the manifest counts the original rows.
    """
    dice = random.Random(seed)
    clients = cast() if clients is None else list(clients)
    names = list(dict.fromkeys(client.group or f"{client.kind}:{client.client_id}" for client in clients))
    members = {name: [client for client in clients if (client.group or f"{client.kind}:{client.client_id}") == name] for name in names}
    sensors = {ref: Sensor(ref, members[name][0].bound) for ref, name in enumerate(names)}
    facts = _Facts(clients, names, members)
    due = [
        (start_ms + int(1_000 * max(client.begin_s, 0)) + at * 7, at, ref, client.in_flight)
        for ref, client in enumerate(clients)
        for at in range(client.connections)
    ]
    heapq.heapify(due)
    free_ms = dict.fromkeys(((ref, at) for _, at, ref, _ in due), 0)
    meter, seq, first, first_ms, previous = Meter(), 0, 0, start_ms, None
    end_ms = start_ms + seconds * 1_000
    last_ms = start_ms
    while due:
        now_ms, connection, ref, in_flight = heapq.heappop(due)
        closes = now_ms >= end_ms or now_ms // (file_set_s * 1_000) != first_ms // (file_set_s * 1_000)
        if closes and seq > first:
            previous = _write(directory, facts, sensors, meter, (first, seq - 1, first_ms, last_ms), previous, now_ms >= end_ms, mutate)
            meter, first, first_ms = Meter(), seq, now_ms
        if now_ms >= end_ms:
            break
        client = clients[ref]
        if now_ms >= start_ms + client.end_s * 1_000:
            continue
        size = max(1, int(client.size * dice.lognormvariate(0, 0.4)))
        sensor = sensors[names.index(client.group or f"{client.kind}:{client.client_id}")]
        throttle_ms = sensor.take(Event(sensor.ref, now_ms, size), seq)
        seq, last_ms = seq + 1, now_ms
        if trace:
            meter.events.append(_event(sensor, seq - 1, now_ms, size, throttle_ms, 100 * ref + connection))
        meter.note(ref, client, now_ms, size, throttle_ms, int(80_000 + size * 6 * dice.uniform(0.8, 1.3)))
        free_ms[ref, connection] = max(free_ms[ref, connection], now_ms + throttle_ms)
        if in_flight > 1:
            heapq.heappush(due, (now_ms + 1, connection, ref, in_flight - 1))
            continue
        think_ms = max(1, int(client.think_ms * dice.uniform(0.4, 1.6)))
        heapq.heappush(due, (free_ms[ref, connection] + think_ms, connection, ref, client.in_flight))
    return directory


def _event(sensor: Sensor, seq: int, ts_ms: int, value: int, throttle_ms: int, conn_id: int) -> dict[str, Any]:
    assert sensor.row is not None
    live_sum, window_ms = sensor.measured
    measured = {"window_sum": live_sum, "window_ms": window_ms, "observed": live_sum / (window_ms / 1_000.0)}
    api = {"api_key": 0, "api_version": 9, "kind": 0}
    reported = {"throttle_ms": throttle_ms, "applied_ms": throttle_ms, "bound": sensor.group.bound, "value": value, "conn_id": conn_id}
    place = {"run_id": RUN_ID, "proxy_id": PROXY_ID, "group_ref": sensor.ref, "seq": seq, "ts_ms": ts_ms}
    return {**place, "sample_start_ms": sensor.row.sample_start_ms, **reported, **measured, **api}


@dataclass
class _Facts:
    clients: Sequence[Client]
    names: list[str]
    members: dict[str, list[Client]]

    def groups(self) -> list[dict[str, Any]]:
        made = []
        for ref, name in enumerate(self.names):
            first = self.members[name][0]
            shared = len(self.members[name]) > 1
            made.append(
                {
                    "run_id": RUN_ID,
                    "proxy_id": PROXY_ID,
                    "group_ref": ref,
                    "quota_type": "Produce" if first.kind == "produce" else "Fetch",
                    "scope": "broker",
                    "node_id": 1,
                    "node": "1",
                    "tag_user": first.user if shared else "",
                    "tag_client_id": "" if shared else first.client_id,
                    "num_samples": 11,
                    "window_ms": 1_000,
                    "cap_ms": None,
                    "first_seen_ms": 0,
                }
            )
        return made

    def bounds(self) -> list[dict[str, Any]]:
        common = {"run_id": RUN_ID, "from_seq": 0, "source": "table", "generation": 1}
        return [
            {"group_ref": ref, "bound": self.members[name][0].bound, "rule": "client-id", **common} for ref, name in enumerate(self.names)
        ]

    def named(self) -> list[dict[str, Any]]:
        common = {"run_id": RUN_ID, "principal_type": "User", "name_form": "plain"}
        return [
            {"client_ref": ref, "principal": client.user, "client_id": client.client_id, **common}
            for ref, client in enumerate(self.clients)
        ]


def _write(
    directory: Path,
    facts: _Facts,
    sensors: dict[int, Sensor],
    meter: Meter,
    span: tuple[int, int, int, int],
    previous: str | None,
    final: bool,
    mutate: Callable[[dict[str, list[dict[str, Any]]]], None],
) -> str:
    samples = [row.as_dict() for sensor in sensors.values() for row in sensor.rows]
    for sensor in sensors.values():
        sensor.row, sensor.rows = None, []
    place = {"run_id": RUN_ID, "proxy_id": PROXY_ID, "node_id": 1, "node": "1", "listener": "main"}
    usage = [
        {**place, "client_ref": ref, "api_class": api_class, "second_ms": second_ms, **row}
        for (ref, api_class, second_ms), row in sorted(meter.usage.items())
    ]
    state = {"run_id": RUN_ID, "proxy_id": PROXY_ID, "from_seq": span[0], "ts_ms": span[2], "mode": "mute", "scope": "broker"}
    enabled = {"produce_enabled": True, "fetch_enabled": True, "request_enabled": True}
    tables = {
        "samples": samples,
        "events": meter.events,
        "usage": usage,
        "dim_group": facts.groups(),
        "dim_bound": facts.bounds(),
        "dim_client": facts.named(),
        "states": [{**state, "delay_max_ms": 5_000, "num_samples": 11, "window_ms": 1_000, "level": "packed", **enabled}],
    }
    types = {group["group_ref"]: group["quota_type"] for group in tables["dim_group"]}
    counts = counts_of_types(samples, types)
    totals = {name: sum(row[name] for row in usage) for name in ("requests", "produce_bytes", "fetch_bytes", "handler_ns")}
    mutate(tables)
    at = datetime.fromtimestamp(span[2] / 1_000, UTC)
    hour = (f"{at:%Y-%m-%d}", f"{at:%H}")
    settings = {"num_samples": 11, "window_ms": 1_000, "mode": "mute"}
    level = "trace" if meter.events else "packed"
    return write_file_set(
        directory, tables, *span, counts, hour=hour, usage=totals, settings=settings, final=final, previous=previous, level=level
    )


if __name__ == "__main__":
    write_scene(Path(sys.argv[1]), int(float(sys.argv[2]) * 60) if len(sys.argv) > 2 else 600)
    json.dump({"directory": sys.argv[1]}, sys.stdout)
