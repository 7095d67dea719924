"""Second step of a roll-up: a task adds up the sums by second of its groups and clients of a day, and makes their rows of all tables."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from pipeline.duckdb.charges import charges_of
from pipeline.duckdb.database import Database, database
from pipeline.duckdb.decisions import added_decisions
from pipeline.duckdb.escapes import see_client_seconds
from pipeline.duckdb.gold import adjustments, charge_tables, gold_tables, look_at_hours, put_coverage, used_in_days
from pipeline.duckdb.seconds import DECISION_SECONDS, USAGE_SECONDS, WAITS
from pipeline.duckdb.usage import added_usage
from pipeline.rollup.coverage import Coverage
from pipeline.rollup.inputs import Hour
from pipeline.rollup.ledger import hour_key
from pipeline.rollup.prices import Prices
from pipeline.spark.rollup.names import Names
from pipeline.spark.rollup.pieces import Piece, as_batch, pieces_in
from pipeline.spark.rollup.reading import Batches
from pipeline.spark.rollup.shares import File, tasks_here
from pipeline.spark.worker import settle

_READ = {"usage_seconds": USAGE_SECONDS, "decision_seconds": DECISION_SECONDS, "waits": WAITS}


class Wanted(NamedTuple):
    """The tables to make.

    Attributes:
        hours: the hours of open days.
        dates: the days of `hours`, or those of late file sets.
        coverage: by hour.
        days: coverage by day.
        batch: name of the late file sets, whose adjustments are made; None: the tables of open days are made.
    """

    hours: tuple[Hour, ...]
    dates: tuple[str, ...]
    coverage: Mapping[Hour, Coverage]
    days: Mapping[str, Coverage]
    batch: str | None = None


class Building(NamedTuple):
    """What all tasks of the step know.

    Attributes:
        hours: all hours of the run.
        hour_coverage, day_coverage: in percent.
        hashes: the hash over the manifests of each day.
        floors: the least wait in ms of a group in `rate_series`, by hour ("2026-11-21 07").
        batch: name of the late file sets, whose adjustments are made; None: the tables of open days are made.
        writers: the task of the next step that gets each file, by table and partition. Other rows are left out.
    """

    hours: tuple[Hour, ...]
    hour_coverage: Mapping[Hour, float]
    day_coverage: Mapping[str, float]
    hashes: Mapping[str, str]
    levels: tuple[str, ...]
    prices: Prices | None
    batch: str | None
    floors: Mapping[str, int]
    names: Names
    writers: Mapping[File, int]


def files_of(job: Building, hours: tuple[Hour, ...], days: tuple[str, ...]) -> list[File]:
    """Return table and partition of each file that the tables of some hours and days can have."""
    charged = {} if job.prices is None else charge_tables((), {}, {}, job.batch)
    if job.batch is not None:
        return [(table, f"date={date}/batch={job.batch}") for table in ("usage_adjustment", *charged) for date in days]
    tables = {table: made.is_daily for table, made in gold_tables(job.levels).items()}
    tables |= {"quarantine": False, **dict.fromkeys(charged, True)}
    of_hours = [f"date={date}/hour={hour}" for date, hour in hours]
    of_days = [f"date={date}" for date in days]
    return [(table, place) for table, is_daily in tables.items() for place in (of_days if is_daily else of_hours)]


def building(job: Building) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function of tasks that get the pieces of their share."""

    def build(batches: Batches) -> Iterator[pa.RecordBatch]:
        with database(tasks_here()) as made:
            dates = set()
            for piece in pieces_in(batches):
                if piece.name not in _READ:
                    yield from _sent(job, piece.name, piece.place, piece.rows)
                    continue
                made.insert("waits" if piece.name == "waits" else f"{piece.name}_read", piece.rows)
                dates.add(piece.place)
            for date in dates:
                _add_up(made, job)
                for table, place, rows in _tables(made, job, date):
                    yield from _sent(job, table, place, rows)
        settle()

    return build


def _sent(job: Building, table: str, place: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    writer = job.writers.get((table, place))
    if writer is not None and len(rows):
        yield as_batch(Piece(writer, table, place, rows))


def _add_up(made: Database, job: Building) -> None:
    """Make one row of the rows that several file sets have for a second."""
    for name, schema in _READ.items():
        made.insert(name if name == "waits" else f"{name}_read", schema.empty_table())
    made.add("usage_seconds", added_usage("usage_seconds_read"))
    made.add("decision_seconds", added_decisions("decision_seconds_read"))
    for name in ("usage_seconds_read", "decision_seconds_read"):
        made.run(f"DROP TABLE {name}")
    made.number_hours(job.hours)
    job.names.put_gold(made)
    put_coverage(made, job.hour_coverage, job.day_coverage)


def _tables(made: Database, job: Building, date: str) -> Iterator[tuple[str, str, pa.Table]]:
    """Yield name, partition and rows of each table."""
    if job.batch is not None:
        yield "usage_adjustment", f"date={date}/batch={job.batch}", made.table(adjustments())
    else:
        tables = gold_tables(job.levels).items()
        hours = [hour for hour in job.hours if hour[0] == date]
        made.look_at(hours)
        see_client_seconds(made)
        yield from ((table, f"date={date}", made.table(query)) for table, (query, _, is_daily) in tables if is_daily)
        for hour in hours:
            place = f"date={date}/hour={hour[1]}"
            if ("rate_series", place) in job.writers:
                look_at_hours(made, [hour])
                longest = f"WHERE rank_waited >= {job.floors.get(hour_key(hour), 0)}"
                for table, (query, _, is_daily) in tables:
                    if not is_daily:
                        yield table, place, made.table(f"SELECT * FROM ({query}) {longest if table == 'rate_series' else ''}")
    if job.prices is not None:
        place = f"date={date}" if job.batch is None else f"date={date}/batch={job.batch}"
        charges = charges_of(used_in_days(made), job.prices, job.batch)
        for table, (rows, schema) in charge_tables(charges, job.day_coverage, job.hashes, job.batch).items():
            yield table, place, pa.Table.from_pylist(list(rows), schema=schema)
