"""The table `comparisons`, from the rows that the meter noted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from metering_format.tables import COMPARISONS
from proxy.meter.batch import Fact
from proxy.meter.comparisons import COLUMNS


def comparisons_table(facts: Iterable[Fact], run: tuple[str, str]) -> pa.Table:
    """Return rows of COMPARISONS."""
    rows = [row for fact in facts for row in fact["rows"]]
    columns: dict[str, Any] = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {name: [] for name in COLUMNS}
    columns["run_id"], columns["proxy_id"] = [run[0]] * len(rows), [run[1]] * len(rows)
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in COMPARISONS], schema=COMPARISONS)
