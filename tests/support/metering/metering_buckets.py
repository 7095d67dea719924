"""A metering directory of controller mutations: token buckets of `quota` decide one by one, and rows record the decisions."""

import heapq
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from metering_format.event_kinds import CHARGED, OWED, REFUSED, SETTLED
from quota.groups.mutation_group import MutationGroup
from tests.support.metering.metering_directory import state_row, write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID

START_MS = 1_795_262_400_000  # 2026-11-21 12:00 UTC, the hour of the files
Mutation = Callable[[dict[str, list[dict[str, Any]]]], None]
"""Changes the tables of a file set before they are written."""


class Buckets:
    """Some groups, and the rows of their decisions.

    Args:
        client_ids: client-ids of the groups; c0, c1 ... by default.
    """

    def __init__(self, bounds: list[float], *, num_samples: int = 11, window_ms: int = 1_000, client_ids: Sequence[str] = ()) -> None:
        self.num_samples, self.window_ms = num_samples, window_ms
        self.client_ids = list(client_ids) or [f"c{ref}" for ref in range(len(bounds))]
        full_ms = START_MS - 2 * num_samples * window_ms
        self.groups = [
            MutationGroup({"user": "", "client-id": client_id}, bound, num_samples=num_samples, window_ms=window_ms, last_update_ms=full_ms)
            for client_id, bound in zip(self.client_ids, bounds, strict=True)
        ]
        self.bounds = [{"group_ref": ref, "from_seq": 0, "bound": bound} for ref, bound in enumerate(bounds)]
        self.rows: list[dict[str, Any]] = []
        self.seq = 0
        self.now_ms = START_MS
        self.connection = 1
        self.due: list[tuple[int, int]] = []

    def change(self, ref: int, bound: float) -> None:
        """Change a group's bound from here on."""
        self.groups[ref].update_bound(bound)
        self.bounds.append({"group_ref": ref, "from_seq": self.seq, "bound": bound})

    def step(self, ref: int, permits: int, way: str) -> int:
        """Let a group take `permits`: `strict`, `permissive`, or `settled` when the answer has another number; return the wait in ms."""
        group = self.groups[ref]
        before, since_ms = group.balance
        throttle_ms, kind = 0, SETTLED
        if way == "strict":
            kind = REFUSED if group.is_exhausted(self.now_ms) else CHARGED
            throttle_ms = group.record(permits, self.now_ms)
        elif way == "permissive":
            kind, throttle_ms = OWED, group.record_permissive(permits, self.now_ms)
        else:
            group.record_unchecked(permits, self.now_ms)
        place = {"run_id": RUN_ID, "proxy_id": PROXY_ID, "group_ref": ref, "seq": self.seq, "ts_ms": self.now_ms}
        reported = {"sample_start_ms": self.now_ms, "kind": kind, "value": permits, "window_sum": 0, "window_ms": 0}
        asked = {"conn_id": self.connection, "api_key": 19, "api_version": 7, "before": before, "since_ms": since_ms, "bound": group.bound}
        waits = {"throttle_ms": throttle_ms, "applied_ms": throttle_ms, "observed": group.tokens(self.now_ms)}
        self.rows.append({**place, **reported, **asked, **waits})
        self.seq += 1
        return throttle_ms

    def play(self, steps: int, dice: random.Random) -> None:
        """Let clients send requests at random."""
        for _ in range(steps):
            self.now_ms += dice.choice([0, 0, 3, 250, 999, 1_000, 4_321, 20_000])
            way = dice.choice(["strict", "strict", "strict", "permissive", "settled"])
            permits = -dice.randrange(1, 6) if way == "settled" else dice.randrange(1, 40)
            self.step(dice.randrange(len(self.groups)), permits, way)

    def serve(self, connections: int, until_s: float, dice: random.Random) -> None:
        """Let connections, each of one group, send a request, wait as they are throttled, pause, and send again; a second call
        continues.
        """
        self.due = self.due or [(self.now_ms + 7 * number, number) for number in range(1, connections + 1)]
        end_ms = self.now_ms + int(1_000 * until_s)
        while self.due[0][0] <= end_ms:
            self.now_ms, self.connection = heapq.heappop(self.due)
            way = "permissive" if self.connection % 3 == 0 else "strict"
            wait_ms = self.step(self.connection % len(self.groups), dice.randrange(1, 12), way)
            heapq.heappush(self.due, (self.now_ms + wait_ms + dice.randrange(1, 900), self.connection))


def write_buckets(
    directory: Path,
    buckets: Buckets,
    batches: list[Callable[[Buckets], None]],
    mutate: Mutation = lambda _tables: None,
    mode: str = "mute",
    **reported: Any,
) -> Path:
    """Write one run, a file set for each batch; return the directory. The manifests have the actual decisions.

    Args:
        reported: passed to `write_file_set`, such as the hour.
    """
    previous = None
    for number, batch in enumerate(batches):
        first_seq, first_ms, buckets.rows = buckets.seq, buckets.now_ms, []
        batch(buckets)
        counts = counts_of(buckets.rows)
        tables = {
            "events": [dict(row) for row in buckets.rows],
            "dim_group": [_group(ref, buckets) for ref in range(len(buckets.groups))],
            "dim_bound": [{"run_id": RUN_ID, "rule": "client-id", "source": "file", "generation": 1, **bound} for bound in buckets.bounds],
            "states": [state_row(first_seq, first_ms, mode)],
        }
        times_ms = [row["ts_ms"] for row in buckets.rows] or [first_ms]
        mutate(tables)
        span = (first_seq, buckets.seq - 1, times_ms[0], times_ms[-1])
        previous = write_file_set(directory, tables, *span, counts, final=number == len(batches) - 1, previous=previous, **reported)
    return directory


def counts_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the manifest's counts of the rows."""
    waits = [row["throttle_ms"] for row in rows if row["throttle_ms"] > 0]
    units = sum(row["value"] for row in rows if row["kind"] != REFUSED)
    return {"ControllerMutation": {"decisions": len(rows), "units": units, "throttled": len(waits), "throttle_ms": sum(waits)}}


def _group(ref: int, buckets: Buckets) -> dict[str, Any]:
    sensor = {"num_samples": buckets.num_samples, "window_ms": buckets.window_ms, "cap_ms": None, "first_seen_ms": 0}
    place = {"run_id": RUN_ID, "proxy_id": PROXY_ID, "scope": "cluster", "node": "cluster"}
    return {
        **place,
        "group_ref": ref,
        "quota_type": "ControllerMutation",
        "tag_user": "",
        "tag_client_id": buckets.client_ids[ref],
        **sensor,
    }
