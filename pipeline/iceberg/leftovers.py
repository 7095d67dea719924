"""Removes rows of builds that do not count: those that a later build replaced, and those of runs that ended early.

The rows of a replaced build stay for `KEPT_MS`: a query that has read `runs` before the commit still counts them.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterable
from typing import Final

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.iceberg.catalog import without_retries

KEPT_MS: Final = 3_600_000
"""Time that a query may take, from reading `runs` to reading its other tables."""
_BUILD_ID: Final = "build_id"


def remove_leftovers(runs: Table, tables: Iterable[Table], first: datetime.date, last: datetime.date) -> None:
    """Remove the rows of these days, and of the day before, that do not count. Only whole files are removed, so no row is written.

    The run that calls this has published, so that no run that began before it can publish: rows of its build count now, or never.

    Args:
        runs: the table `runs`, as it is after the commit of this run.
        tables: the tables whose rows have a build.
        first, last: the days whose rows this run has changed.
    """
    days = f"date >= '{first - datetime.timedelta(days=1)}' AND date <= '{last}'"
    counted = _counted(runs, days, int(time.time() * 1_000) - KEPT_MS)
    for table in tables:
        left = [task.file for task in table.scan(row_filter=days).plan_files() if (_build_of(table, task.file) or "") not in counted | {""}]
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


def _counted(runs: Table, days: str, since_ms: int) -> set[str]:
    """Return the builds of these days that count now, or that counted at a time since `since_ms`, in milliseconds of Unix time."""
    snapshots = sorted(runs.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    older = [snapshot for snapshot in snapshots if snapshot.timestamp_ms < since_ms]
    found: set[str] = set()
    for snapshot in [*older[-1:], *snapshots[len(older) :]]:
        rows = runs.scan(row_filter=days, selected_fields=(_BUILD_ID,), snapshot_id=snapshot.snapshot_id).to_arrow()
        found.update(rows.column(_BUILD_ID).drop_null().to_pylist())
    return found


def _build_of(table: Table, file: DataFile) -> str | None:
    """Return the build of a file's rows; None if they may have several, as after a compaction."""
    column = table.schema().find_field(_BUILD_ID).field_id
    least, most = (file.lower_bounds or {}).get(column), (file.upper_bounds or {}).get(column)
    return least.decode() if least is not None and least == most else None
