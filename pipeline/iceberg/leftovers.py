"""Removes rows of builds that do not count from Iceberg tables. Only whole files are removed, so no row is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.builds.leftovers import kept_since_ms
from pipeline.builds.runs import BUILD_ID
from pipeline.iceberg.catalog import without_retries


def remove_leftovers(runs: Table, tables: Iterable[Table], days: str) -> None:
    """Remove the rows of some days whose build does not count.

    Args:
        runs: the table `runs`, as it is after the commit of this run.
        tables: the tables whose rows have a build.
        days: a filter for the days.
    """
    counted = _counted(runs, days)
    for table in tables:
        files = [task.file for task in table.scan(row_filter=days).plan_files()]
        left = [file for file in files if (build := _build_of(table, file)) is not None and build not in counted]
        if not left:
            continue
        # if another program changes the table at this time, the next run removes them
        with (
            contextlib.suppress(CommitFailedException, ValidationException),
            without_retries(table).transaction() as transaction,
            transaction.update_snapshot().overwrite() as change,
        ):
            for file in left:
                change.delete_data_file(file)


def _counted(runs: Table, days: str) -> set[str]:
    """Return the builds of some days that count now, or that counted not long ago."""
    snapshots = sorted(runs.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    since_ms = kept_since_ms()
    older = [snapshot for snapshot in snapshots if snapshot.timestamp_ms < since_ms]
    found: set[str] = set()
    for snapshot in [*older[-1:], *snapshots[len(older) :]]:
        rows = runs.scan(row_filter=days, selected_fields=(BUILD_ID,), snapshot_id=snapshot.snapshot_id).to_arrow()
        found.update(rows.column(BUILD_ID).drop_null().to_pylist())
    return found


def _build_of(table: Table, file: DataFile) -> str | None:
    """Return the build of a file's rows; None if they may have several, as after a compaction."""
    column = table.schema().find_field(BUILD_ID).field_id
    least, most = (file.lower_bounds or {}).get(column), (file.upper_bounds or {}).get(column)
    return least.decode() if least is not None and least == most else None
