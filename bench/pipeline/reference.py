"""The tables of a roll-up by DuckDB alone, from `bench/pipeline/duckdb_rollup.sql`, and their comparison with the tables of an engine.

python -m bench.pipeline.reference METERING OUT [TABLES]   times the statements, and compares their tables with those in TABLES
"""

import os
import re
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.tables import TABLES

SQL: Final = Path(__file__).with_name("duckdb_rollup.sql")
FOUR: Final = ("usage_hour", "usage_day", "decisions_hour", "decisions_day")
DEFAULT: Final = (*FOUR, "throttle_histogram", "throttle_stretches", "rate_series", "escapes")
TOLERANCE: Final = 1e-9
_READ: Final = ("samples", "events", "usage", "dim_group", "dim_client")
_MADE: Final = re.compile(r"\bCREATE TABLE (\w+) AS")
_NOT_OF_THE_RAW_ROWS: Final = ("coverage_percent",)


def build(source: Path, out: Path, wanted: Collection[str] = DEFAULT) -> tuple[Any, float]:
    """Make tables with as many threads as this process has cores, and write each to a file; return the connection and the time in s."""
    out.mkdir(parents=True)
    began = time.perf_counter()
    connection = duckdb.connect(config={"threads": len(os.sched_getaffinity(0)), "preserve_insertion_order": False})
    for table in _READ:
        _see(connection, source, table)
    for statement in SQL.read_text().split(";\n"):
        made = _MADE.search(statement)
        if made is None or made[1] not in DEFAULT or made[1] in wanted:
            connection.execute(statement)
    for table in wanted:
        connection.execute(f"COPY {table} TO '{out / table}.parquet' (COMPRESSION zstd)")
    return connection, time.perf_counter() - began


def _see(connection: Any, source: Path, table: str) -> None:
    """Make the view of a raw table; no file may have rows of it."""
    connection.register("empty", TABLES[table].empty_table())
    connection.execute(f"CREATE TABLE none_of_{table} AS SELECT *, NULL::VARCHAR AS date, NULL::VARCHAR AS hour FROM empty")
    connection.unregister("empty")
    files = f"{source / table}/**/*.parquet"
    read = f"SELECT * EXCLUDE (schema, proxy) FROM read_parquet('{files}', union_by_name = true, hive_types_autocast = false)"
    both = f" UNION ALL BY NAME {read}" if any((source / table).rglob("*.parquet")) else ""
    connection.execute(f"CREATE VIEW raw_{table} AS SELECT * FROM none_of_{table}{both}")


def differences(connection: Any, tables: Path, wanted: Collection[str] = DEFAULT) -> Iterator[str]:
    """Yield the tables whose rows differ from those of an engine: integers and texts in any way, floats by more than TOLERANCE."""
    for table in wanted:
        if not any((tables / table).rglob("*.parquet")):
            if connection.execute(f"SELECT count(*) FROM {table}").fetchone() != (0,):
                yield f"{table}: the engine has no row"
            continue
        files = f"{tables / table}/**/*.parquet"
        theirs = f"read_parquet('{files}', hive_partitioning = true, hive_types_autocast = false)"
        types = {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {theirs}").fetchall()}
        names = [name for name in types if name not in _NOT_OF_THE_RAW_ROWS]
        floats = [name for name in names if types[name] == "DOUBLE"]
        columns = ", ".join(f"{name}::{'TIMESTAMP' if name == 'start' else types[name]} AS {name}" for name in names)
        order = ", ".join(f"{name} NULLS FIRST" for name in (*(name for name in names if name not in floats), *floats))
        ours, its = (connection.sql(f"SELECT {columns} FROM {place} ORDER BY {order}").to_arrow_table() for place in (table, theirs))
        if len(ours) != len(its):
            yield f"{table}: {len(ours):,} rows, the engine has {len(its):,}"
            continue
        wrong = [name for name in names if not _are_equal(ours.column(name), its.column(name), is_float=name in floats)]
        if wrong:
            yield f"{table}: {', '.join(wrong)}"


def _are_equal(ours: pa.ChunkedArray, its: pa.ChunkedArray, *, is_float: bool) -> bool:
    if not is_float:
        return bool(ours.combine_chunks().equals(its.combine_chunks()))
    same_nulls = pc.all(pc.equal(pc.is_null(ours), pc.is_null(its))).as_py()
    values = [pc.fill_null(column, 0.0).to_numpy() for column in (ours, its)]
    return bool(same_nulls is not False and np.allclose(*values, rtol=TOLERANCE, atol=TOLERANCE))


def main() -> int:
    """Print the times and the differences; return 1 when there is a difference."""
    source, out, *tables = map(Path, sys.argv[1:])
    connection, seconds = build(source, out / "all")
    _, of_four = build(source, out / "four", FOUR)
    found = list(differences(connection, tables[0])) if tables else []
    print(f"{seconds:.2f} {of_four:.2f}")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
