"""Tables that a roll-up published, read back without Spark: for reports and summaries, which show a bounded part."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

ROWS_MAX: Final = 2_000_000
_PARTITIONS: Final = pa.schema([("date", pa.string()), ("hour", pa.string())])


def read_table(directory: Path, table: str, *, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """Return rows of a published table, at most `ROWS_MAX`; none when it was not asked for."""
    place = directory / table
    files = sorted(str(path) for path in place.rglob("*.parquet"))
    if not files:
        return []
    partitioning = ds.partitioning(_PARTITIONS, flavor="hive")
    found = ds.dataset(files, format="parquet", partitioning=partitioning, partition_base_dir=str(place))
    chosen = None if columns is None else [name for name in columns if name in found.schema.names]
    rows: list[dict[str, Any]] = found.head(ROWS_MAX, columns=chosen).to_pylist()
    return rows
