"""Level `trace`: a row for each decision, beside the packed samples; notes, which no sensor recorded, are only here."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from proxy.metering.batch import Fact
from proxy.metering.packing import Packed
from proxy.metering.record import NOTE
from proxy.metering.schema import EVENTS

KEY_BITS: Final = 16


def events_of(rows: dict[str, Any], bounds: NDArray[np.float64], packed: Packed, observed: list[Fact], run: tuple[str, str]) -> pa.Table:
    """Return rows of EVENTS in decision order.

    Args:
        rows: the raw columns, in decision order.
        bounds: of each row.
        observed: of notes, by number.
        run: run_id and proxy_id.
    """
    count = len(rows["seq"])
    figures = packed.figures
    measured: dict[str, NDArray[Any]] = {
        "sample_start_ms": rows["ts_ms"].copy(),
        "window_sum": np.zeros(count, np.int64),
        "window_ms": np.zeros(count, np.int64),
        "observed": np.zeros(count),
    }
    if figures is not None:
        order = np.argsort(figures.events.seq)
        recorded = np.flatnonzero(rows["kind"] != NOTE)
        measured["sample_start_ms"][recorded] = figures.sample_start_ms[order]
        measured["window_sum"][recorded] = figures.live_sum[order]
        measured["window_ms"][recorded] = figures.window_ms[order]
        measured["observed"][recorded] = figures.observed[order]
    for note in observed:
        at = int(np.searchsorted(rows["seq"], note["seq"]))
        if at < count and rows["seq"][at] == note["seq"]:
            measured["observed"][at] = note["observed"]
    columns = {
        "run_id": [run[0]] * count,
        "proxy_id": [run[1]] * count,
        **{name: rows[name] for name in ("group_ref", "seq", "ts_ms", "kind", "value", "throttle_ms", "applied_ms", "conn_id")},
        **measured,
        "bound": bounds,
        "api_key": rows["api_index"] >> KEY_BITS,
        "api_version": rows["api_index"] & ((1 << KEY_BITS) - 1),
    }
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in EVENTS], schema=EVENTS)
