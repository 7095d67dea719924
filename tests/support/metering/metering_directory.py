"""A metering directory as the proxy writes it, made from decisions without code of the proxy."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.places import PACED
from metering_format.tables import PACED_COLUMNS, SHARED_COLUMNS, TABLES
from pipeline.manifest import file_sha256
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID, Event, Sensor

Mutation = Callable[[list[dict[str, Any]]], None]
"""Changes the rows of `samples` before they are written."""
QUOTA_TYPE = {True: "Request", False: "Produce"}


def write_directory(
    directory: Path,
    batches: Sequence[list[Event]],
    sensors: dict[int, Sensor],
    *,
    mode: str = "delay",
    mutate: Mutation = lambda _rows: None,
    bound_changes: Sequence[tuple[int, int, float]] = (),
    count_before_mutation: bool = True,
) -> Path:
    """Write one run, a file set for each batch of events; return the directory.

    Args:
        bound_changes: (batch, group, bound): the bound changes before that batch.
        count_before_mutation: whether the manifest counts the rows before `mutate` changes them.
    """
    seq = 0
    bounds = [{"group_ref": ref, "from_seq": 0, "bound": sensor.group.bound} for ref, sensor in sensors.items()]
    previous = None
    for number, events in enumerate(batches):
        for batch, ref, bound in bound_changes:
            if batch == number:
                sensors[ref].group.update_bound(bound)
                bounds.append({"group_ref": ref, "from_seq": seq, "bound": bound})
        for sensor in sensors.values():
            sensor.row = None
            sensor.rows = []
        first = seq
        for event in events:
            sensors[event.group].take(event, seq)
            seq += 1
        rows = [row.as_dict() for sensor in sensors.values() for row in sensor.rows]
        if mode == "observe":
            for row in rows:
                row["applied_ms"] = [0] * len(row["applied_ms"])
                row["applied_ms_sum"] = 0
        counts = counts_of(rows, sensors)
        mutate(rows)
        if not count_before_mutation:
            counts = counts_of(rows, sensors)
        tables = {
            "samples": rows,
            "dim_group": [_group(sensor) for sensor in sensors.values()],
            "dim_bound": [{"run_id": RUN_ID, "rule": "client-id", "source": "file", "generation": 1, **bound} for bound in bounds],
            "states": [state_row(first, events[0].ts_ms, mode)],
        }
        last = number == len(batches) - 1
        previous = write_file_set(
            directory, tables, first, seq - 1, events[0].ts_ms, events[-1].ts_ms, counts, final=last, previous=previous
        )
    return directory


def write_file_set(
    directory: Path,
    tables: dict[str, list[dict[str, Any]]],
    first_seq: int,
    last_seq: int,
    first_ts_ms: int,
    last_ts_ms: int,
    counts: dict[str, Any],
    *,
    hour: tuple[str, str] = ("2026-11-21", "12"),
    part: int = 0,
    **fields: Any,
) -> str:
    """Write the files and the manifest of one file set; return its name."""
    partition = Path(f"proxy={PROXY_ID}", f"date={hour[0]}", f"hour={hour[1]}")
    file_set = f"{RUN_ID}-{first_seq:016d}" + (f".{part:04d}" if part else "")
    files = []
    for name, rows in tables.items():
        if not rows:
            continue
        path = directory / name / "schema=1" / partition / f"{file_set}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        left_out = [*SHARED_COLUMNS.get(name, ()), *(() if PACED in fields.get("settings", {}) else PACED_COLUMNS.get(name, ()))]
        pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[name]).drop_columns(left_out), path)
        reported = {"rows": len(rows), "bytes": path.stat().st_size, "sha256": file_sha256(path)}
        files.append({"table": name, "path": str(path.relative_to(directory)), **reported})
    manifest = {
        "schema": 1,
        "kind": "sluice-metering",
        "run_id": RUN_ID,
        "proxy_id": PROXY_ID,
        "proxy_version": "0",
        "first_seq": first_seq,
        "last_seq": last_seq,
        "part": part,
        "first_ts_ms": first_ts_ms,
        "last_ts_ms": last_ts_ms,
        "wall_offset_ms": 1_790_000_000_000,  # already part of all times in the files
        "level": "packed",
        "names": "plain",
        "truncated": False,
        "files": files,
        "counts": counts,
        **fields,
    }
    path = directory / "manifests" / "schema=1" / partition / f"{file_set}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
    return file_set


def counts_of(rows: list[dict[str, Any]], sensors: dict[int, Sensor]) -> dict[str, dict[str, int]]:
    """Return the manifest's counts of the decisions in `rows`."""
    return counts_of_types(rows, {ref: QUOTA_TYPE[sensor.request] for ref, sensor in sensors.items()})


def counts_of_types(rows: list[dict[str, Any]], quota_types: dict[int, str]) -> dict[str, dict[str, int]]:
    """Return the manifest's counts of the decisions in `rows`, given the quota type of each group."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        count = counts.setdefault(quota_types[row["group_ref"]], {"decisions": 0, "units": 0, "throttled": 0, "throttle_ms": 0})
        count["decisions"] += row["n"]
        count["units"] += row["sum"]
        count["throttled"] += row["throttled_n"]
        count["throttle_ms"] += row["throttle_ms_sum"]
    return counts


def _group(sensor: Sensor) -> dict[str, Any]:
    return {
        "run_id": RUN_ID,
        "proxy_id": PROXY_ID,
        "group_ref": sensor.ref,
        "quota_type": QUOTA_TYPE[sensor.request],
        "scope": "broker",
        "node_id": 1,
        "tag_client_id": f"client-{sensor.ref}",
        "num_samples": sensor.num_samples,
        "window_ms": sensor.window_ms,
        "cap_ms": sensor.group.cap_ms,
        "first_seen_ms": 0,
    }


def state_row(from_seq: int, ts_ms: int, mode: str) -> dict[str, Any]:
    """Return the row of the settings of a run."""
    enabled = {"produce_enabled": True, "fetch_enabled": True, "request_enabled": True}
    settings = {"scope": "broker", "delay_max_ms": 5_000, "num_samples": 11, "window_ms": 1_000, "level": "packed"}
    return {"run_id": RUN_ID, "proxy_id": PROXY_ID, "from_seq": from_seq, "ts_ms": ts_ms, "mode": mode, **settings, **enabled}
