"""The files of published tables that a summary and a report read. Names are paths below the output directory, such as usage_day/date=..."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

LEVELS: Final = ("day", "hour", "minute")
"""From the coarsest to the finest."""
SUMMED: Final = ("usage", "decisions")
"""Tables that have levels. Of these, each hour is summed up once."""
WHOLE: Final = ("usage_adjustment", "chargeback_day", "chargeback_adjustment")
"""Tables that are summed up as a whole."""
NEWEST: Final = ("rate_series", "throttle_stretches", "throttle_histogram", "escapes")
"""Tables of which a report shows the newest rows."""
ROWS_MAX: Final = 500_000
"""Approximate number of rows of a table that are shown."""
_PLACES: Final = ("date=", "hour=")
_PARQUET: Final = ".parquet"


def summed_files(names: Iterable[str]) -> list[str]:
    """Return the files that every summary reads, among those of all tables."""
    names = list(names)
    return [*(name for kind in SUMMED for name in coarsest(names, kind)), *(name for table in WHOLE for name in files_of(names, table))]


def files_of(names: Iterable[str], table: str) -> list[str]:
    """Return the files of a table, oldest first."""
    return sorted(name for name in names if name.startswith(f"{table}/") and name.endswith(_PARQUET))


def coarsest(names: Iterable[str], kind: str) -> list[str]:
    """Return the files of `usage` or `decisions` that cover each hour once, each at the coarsest level that has it."""
    names, found = list(names), list[str]()
    days: set[str] = set()
    hours: set[str] = set()
    for level in LEVELS:
        new = [name for name in files_of(names, f"{kind}_{level}") if _place(name)[0] not in days and "/".join(_place(name)) not in hours]
        days.update(_place(name)[0] for name in new if level == "day")
        hours.update("/".join(_place(name)) for name in new if level == "hour")
        found += new
    return found


def newest(names: Iterable[str], table: str, rows_of: Callable[[str], int]) -> list[str]:
    """Return the newest files of a table, up to the file that reaches `ROWS_MAX` rows, oldest first.

    Args:
        names: the files of all tables.
        table: name of the table.
        rows_of: returns the number of rows of a file.
    """
    chosen: list[str] = []
    rows = 0
    for name in reversed(files_of(names, table)):
        if rows >= ROWS_MAX:
            break
        chosen.append(name)
        rows += rows_of(name)
    return chosen[::-1]


def _place(name: str) -> Sequence[str]:
    """Return the date and hour of a file, from the names of its directories."""
    return [part for part in name.split("/") if part.startswith(_PLACES)]
