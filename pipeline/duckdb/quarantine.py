"""Rows that cannot be counted, stored unchanged with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipeline.duckdb.charges import as_json
from pipeline.duckdb.database import Database
from pipeline.rollup.content.columns import DECISIONS_SILVER, USAGE_SILVER

_NOT_OF_THE_ROW: Final = ("date", "hour", "stem", "problem")
_PLACE: Final = "date, hour, stem, problem"


def quarantined(database: Database) -> Iterator[dict[str, Any]]:
    """Yield the rows of QUARANTINE."""
    for table, view, silver in (("usage", "usage", USAGE_SILVER), ("samples", "decisions", DECISIONS_SILVER)):
        names = [name for name in silver.names if name not in _NOT_OF_THE_ROW]
        columns = ", ".join("whole_principal AS principal" if name == "principal" else name for name in names)
        for batch in database.batches(f"SELECT {_PLACE}, {columns} FROM {view} WHERE problem IS NOT NULL"):
            for row in batch.to_pylist():
                place = {name: row[name] for name in _NOT_OF_THE_ROW}
                values = {name: "" if name == "principal" and row[name] is None else row[name] for name in names}
                yield {"table": table, **place, "row": as_json(values)}
