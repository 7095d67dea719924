"""Rows for single decisions, beside the packed samples: all of them at level `trace`; those of token buckets at every level."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metering_format.event_kinds import NOTE, REMOTE
from metering_format.tables import EVENTS
from proxy.metering.conversion.packing import Figures
from proxy.metering.conversion.remotes import Remotes
from proxy.metering.conversion.runs import RecordedDecisions

KEY_BITS: Final = 16

Step = tuple[int, float, int, float]
"""An operation on a bucket: number of the decision, balance before, time of that balance, balance after."""


def events_of(
    decisions: RecordedDecisions,
    bounds: NDArray[np.float64],
    figures: Figures | None,
    steps: list[Step],
    run: tuple[str, str],
    remotes: Remotes,
) -> pa.Table:
    """Return rows of EVENTS in decision order.

    Args:
        decisions: in order.
        bounds: bound of each decision.
        figures: values of the decisions that a sensor recorded; None: there are none.
        steps: operations on buckets in decision order, also of decisions that are not in `decisions`.
        run: run_id and proxy_id.
        remotes: attributes of the decisions that are usage of other processes.
    """
    rows: dict[str, Any] = {name: np.ascontiguousarray(decisions.records[name]) for name in decisions.records.dtype.names}
    count = len(decisions.seq)
    measured: dict[str, NDArray[Any]] = {
        "sample_start_ms": rows["ts_ms"].copy(),
        "window_sum": np.zeros(count, np.int64),
        "window_ms": np.zeros(count, np.int64),
        "observed": np.zeros(count),
    }
    if figures is not None:
        order = np.argsort(figures.runs.seq)
        recorded = np.flatnonzero((rows["kind"] < NOTE) | (rows["kind"] == REMOTE))
        measured["sample_start_ms"][recorded] = figures.sample_start_ms[order]
        measured["window_sum"][recorded] = figures.live_sum[order]
        measured["window_ms"][recorded] = figures.window_ms[order]
        measured["observed"][recorded] = figures.observed[order]
    columns = {
        "run_id": pa.repeat(run[0], count),
        "proxy_id": pa.repeat(run[1], count),
        "seq": decisions.seq,
        **{name: rows[name] for name in ("group_ref", "ts_ms", "kind", "value", "throttle_ms", "applied_ms", "conn_id")},
        **measured,
        "bound": bounds,
        "api_key": rows["api_index"] >> KEY_BITS,
        "api_version": rows["api_index"] & ((1 << KEY_BITS) - 1),
        **_steps_of(decisions.seq, steps, measured["observed"]),
        **remotes.beside(decisions.seq),
    }
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in EVENTS], schema=EVENTS)


def _steps_of(seq: NDArray[np.int64], steps: list[Step], observed: NDArray[np.float64]) -> dict[str, pa.Array]:
    """Return the columns `before` and `since_ms`, null without a bucket; write the balance after into `observed`."""
    rows = np.array(steps, np.float64).reshape(-1, 4)  # numbers and times are far below 2^53
    at = np.searchsorted(seq, rows[:, 0])
    found = at < len(seq)
    found[found] = seq[at[found]] == rows[found, 0]  # the decision of the others was lost
    where, rows = at[found], rows[found]
    unknown, before, since_ms = np.ones(len(seq), np.bool_), np.zeros(len(seq)), np.zeros(len(seq), np.int64)
    unknown[where], before[where], since_ms[where], observed[where] = False, rows[:, 1], rows[:, 2], rows[:, 3]
    return {"before": pa.array(before, mask=unknown), "since_ms": pa.array(since_ms, mask=unknown)}
