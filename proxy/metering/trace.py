"""Level `trace`: a row for each decision, beside the packed samples."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from proxy.metering.packing import Packed
from proxy.metering.schema import EVENTS

KEY_BITS: Final = 16


def events_of(rows: dict[str, Any], packed: Packed, run: tuple[str, str]) -> pa.Table:
    """Return rows of EVENTS in decision order.

    Args:
        rows: the raw columns, in decision order.
        run: run_id and proxy_id.
    """
    figures = packed.figures
    if figures is None:
        return EVENTS.empty_table()
    order = np.argsort(figures.events.seq)
    columns = {
        "run_id": [run[0]] * len(order),
        "proxy_id": [run[1]] * len(order),
        **{name: rows[name] for name in ("group_ref", "seq", "ts_ms", "kind", "value", "throttle_ms", "applied_ms", "conn_id")},
        "sample_start_ms": figures.sample_start_ms[order],
        "window_sum": figures.live_sum[order],
        "window_ms": figures.window_ms[order],
        "observed": figures.observed[order],
        "bound": figures.events.bound[order],
        "api_key": rows["api_index"] >> KEY_BITS,
        "api_version": rows["api_index"] & ((1 << KEY_BITS) - 1),
    }
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in EVENTS], schema=EVENTS)
