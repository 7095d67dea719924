"""Tables that a roll-up published, read back without Spark: for reports and summaries, which show a bounded part."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

ROWS_MAX: Final = 500_000
_PARTITIONS: Final = pa.schema([("date", pa.string()), ("hour", pa.string())])


def read_table(directory: Path, table: str) -> list[dict[str, Any]]:
    """Return rows of a published table: of whole files from the newest on, until there are `ROWS_MAX`; none when it was not asked for."""
    place = directory / table
    files = [str(path) for path in newest_files(directory, table)]
    if not files:
        return []
    # of columns only the newest files know, and the oldest those that stand for them: the schema of both holds all
    schema = pa.unify_schemas([pq.read_schema(files[0]), pq.read_schema(files[-1]), _PARTITIONS])
    partitioning = ds.partitioning(_PARTITIONS, flavor="hive")
    found = ds.dataset(files, schema=schema, format="parquet", partitioning=partitioning, partition_base_dir=str(place))
    rows: list[dict[str, Any]] = found.to_table().to_pylist()
    return rows


def newest_files(directory: Path, table: str) -> list[Path]:
    """Return the newest files of a table that hold `ROWS_MAX` rows together, or a file more; in the order of time."""
    chosen: list[Path] = []
    rows = 0
    for path in sorted((directory / table).rglob("*.parquet"), reverse=True):
        if rows >= ROWS_MAX:
            break
        chosen.append(path)
        rows += pq.read_metadata(path).num_rows
    return chosen[::-1]
