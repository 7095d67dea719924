"""Statements that make the published tables known to other engines: DuckDB, Spark, Trino, and sources of dbt."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pipeline.rollup.content import columns

DUCKDB: Final = "duckdb"
SPARK: Final = "spark"
TRINO: Final = "trino"
DBT: Final = "dbt"
DIALECTS: Final = (DUCKDB, SPARK, TRINO, DBT)

_BY_HOUR: Final = ("date", "hour")
_BY_DAY: Final = ("date",)
_BY_BATCH: Final = ("date", "batch")


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table: what a row is, its columns, and the columns that are folders."""

    about: str
    schema: pa.Schema
    partitions: tuple[str, ...]

    @property
    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns in the files."""
        return [(field.name, field.type) for field in self.schema if field.name not in ("date", "hour", "batch")]


TABLES: Final = {
    "usage_minute": PublishedTable("a client and API class in a minute", columns.USAGE, _BY_HOUR),
    "usage_hour": PublishedTable("a client and API class in an hour", columns.USAGE, _BY_HOUR),
    "usage_day": PublishedTable("a client and API class on a day", columns.USAGE, _BY_DAY),
    "usage_adjustment": PublishedTable("usage that late files add to a closed day", columns.ADJUSTMENTS, _BY_BATCH),
    "decisions_minute": PublishedTable("a quota group in a minute", columns.DECISIONS, _BY_HOUR),
    "decisions_hour": PublishedTable("a quota group in an hour", columns.DECISIONS, _BY_HOUR),
    "decisions_day": PublishedTable("a quota group on a day", columns.DECISIONS, _BY_DAY),
    "rate_series": PublishedTable("a group in a second, of those that waited longest in an hour", columns.SERIES, _BY_HOUR),
    "throttle_stretches": PublishedTable("an interval in which a client of a group waited", columns.THROTTLE_WINDOWS, _BY_HOUR),
    "throttle_histogram": PublishedTable("the number of waits of a group in a bucket", columns.HISTOGRAM, _BY_HOUR),
    "quarantine": PublishedTable("a row that cannot be counted, with the reason", columns.QUARANTINE, _BY_HOUR),
    "escapes": PublishedTable("a sign that a client tries to bypass a quota", columns.ESCAPES, _BY_DAY),
    "chargeback_day": PublishedTable("the charge of a tenant for a day", columns.CHARGEBACK, _BY_DAY),
    "chargeback_adjustment": PublishedTable("the charge for late usage of a closed day", columns.CHARGEBACK, _BY_BATCH),
    "focus_day": PublishedTable("a line item in the columns of FOCUS 1.0", columns.FOCUS, _BY_DAY),
    "focus_adjustment": PublishedTable("a line item for late usage of a closed day", columns.FOCUS, _BY_BATCH),
}
"""All tables that a roll-up can publish."""

_KEYS: Final = ("date", "tenant", "principal", "client_id", "api_class")
_CHARGED: Final = ("date", "tenant", "sku", "unit", "currency")


@dataclass(frozen=True, slots=True)
class View:
    """A view that adds the adjustments of closed days to the rows of the day."""

    name: str
    about: str
    day: str
    adjustment: str
    keys: tuple[str, ...]
    sums: tuple[str, ...]

    def query(self, prefix: str) -> str:
        """Return the query; `prefix` stands before the names of tables."""
        names = ", ".join((*self.keys, *self.sums))
        sums = ", ".join(f"sum({name}) AS {name}" for name in self.sums)
        both = f"SELECT {names} FROM {prefix}{self.day} UNION ALL SELECT {names} FROM {prefix}{self.adjustment}"
        return f"SELECT {', '.join(self.keys)}, {sums}\nFROM ({both}) AS days\nGROUP BY {', '.join(self.keys)}"


VIEWS: Final = (
    View("usage_total", "usage of a day with its adjustments", "usage_day", "usage_adjustment", _KEYS, columns.USAGE_COUNTS),
    View(
        "charges_total",
        "charges of a day with their adjustments",
        "chargeback_day",
        "chargeback_adjustment",
        _CHARGED,
        ("units", "quantity", "amount"),
    ),
)


def ddl(dialect: str, location: str, schema: str, present: Collection[str]) -> str:
    """Return the statements for all tables and views.

    Args:
        dialect: one of `DIALECTS`.
        location: directory of the tables: a path or a URL, in the form that the engine reads.
        schema: name of the schema of the engine, or of the source of dbt.
        present: the tables that have files. No engine finds partitions of the others.
    """
    place = location.rstrip("/")
    if dialect == DBT:
        return "\n".join(_dbt(schema)) + "\n"
    statements = [f"CREATE SCHEMA IF NOT EXISTS {schema}"]
    for name, table in TABLES.items():
        statements += _TABLE[dialect](f"{schema}.{name}", table, f"{place}/{name}", name in present)
    statements += sums(schema)
    return "".join(f"{statement};\n" for statement in statements)


def sums(schema: str) -> list[str]:
    """Return the statements for the views that add adjustments."""
    return [f"CREATE OR REPLACE VIEW {schema}.{view.name} AS\n{view.query(f'{schema}.')}" for view in VIEWS]


def _duckdb(name: str, table: PublishedTable, place: str, is_present: bool) -> list[str]:
    if not is_present:
        nothing = ", ".join(f'NULL::{_type(kind, _OF_DUCKDB)} AS "{column}"' for column, kind in _all(table))
        return [f"CREATE OR REPLACE VIEW {name} AS SELECT {nothing} WHERE false"]
    types = ", ".join(f"'{column}': {_type(kind, _OF_DUCKDB)}" for column, kind in _partitions(table))
    files = f"{place}/{'/'.join('*' for _ in table.partitions)}/*.parquet".replace("'", "''")
    read = f"read_parquet('{files}', hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true)"
    return [f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {read}"]


def _spark(name: str, table: PublishedTable, place: str, is_present: bool) -> list[str]:
    fields = ",\n".join(f"  `{column}` {_type(kind, _OF_SPARK)}" for column, kind in _all(table))
    where = place.replace("'", "\\'")
    return [
        f"CREATE TABLE IF NOT EXISTS {name} (\n{fields}\n) USING PARQUET PARTITIONED BY ({', '.join(table.partitions)}) LOCATION '{where}'",
        *([f"MSCK REPAIR TABLE {name}"] if is_present else ()),  # it refuses a folder that is not there
    ]


def _trino(name: str, table: PublishedTable, place: str, is_present: bool) -> list[str]:
    fields = ",\n".join(f'  "{column}" {_type(kind, _OF_TRINO)}' for column, kind in _all(table))
    folders = ", ".join(f"'{column}'" for column in table.partitions)
    where = place.replace("'", "''")
    schema, _, short = name.rpartition(".")
    options = f"format = 'PARQUET', external_location = '{where}', partitioned_by = ARRAY[{folders}]"
    return [
        f"CREATE TABLE IF NOT EXISTS {name} (\n{fields}\n) WITH ({options})",
        *([f"CALL system.sync_partition_metadata('{schema}', '{short}', 'FULL')"] if is_present else ()),
    ]


_TABLE: Final[dict[str, Callable[[str, PublishedTable, str, bool], list[str]]]] = {DUCKDB: _duckdb, SPARK: _spark, TRINO: _trino}


def _dbt(source: str) -> Iterator[str]:
    yield "version: 2"
    yield "sources:"
    yield f"  - name: {source}"
    yield "    description: Tables of `sluice meter rollup`"
    yield "    tables:"
    for name, table in TABLES.items():
        yield f"      - name: {name}"
        yield f"        description: 'One row: {table.about}'"
        yield "        columns:"
        for column, kind in _all(table):
            yield f"          - {{name: {column}, data_type: '{_type(kind, _OF_SPARK).lower()}'}}"
    for view in VIEWS:
        yield f"      - name: {view.name}"
        yield f"        description: 'View: {view.about}'"


def _all(table: PublishedTable) -> list[tuple[str, pa.DataType]]:
    """Return the columns of the files, then those that are folders, as Hive has them."""
    return [*table.fields, *_partitions(table)]


def _partitions(table: PublishedTable) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.date32() if name == "date" else pa.string()) for name in table.partitions]


_OF_DUCKDB: Final = {
    pa.string(): "VARCHAR",
    pa.int64(): "BIGINT",
    pa.int32(): "INTEGER",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    columns.TIMESTAMP: "TIMESTAMP",
}
"""Times in the files have no time zone: they are in UTC."""
_OF_SPARK: Final = {**_OF_DUCKDB, pa.string(): "STRING", pa.int32(): "INT"}
_OF_TRINO: Final = {**_OF_DUCKDB, columns.TIMESTAMP: "TIMESTAMP(6)"}


def _type(kind: pa.DataType, names: dict[pa.DataType, str]) -> str:
    return f"DECIMAL({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else names[kind]


def table_names(paths: Sequence[str]) -> set[str]:
    """Return the tables that have files, from paths below the directory."""
    return {path.split("/")[0] for path in paths if path.endswith(".parquet")}
