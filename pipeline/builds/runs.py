"""The table `runs` of a roll-up: the builds that count. It is the ledger of these tables, and what their readers join.

A row has a scope:
    hour: the build of an hour, the manifests that it was built from, a hash of its settings, and its lost decisions.
    day: the build of a day, its coverage with the numbers behind it, and whether it has charges.
    late: a build of adjustments of a closed day, and the late manifests of one hour in it.
    closed: `date` is the last closed day.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from pipeline.rollup.ledger import Ledger

HOUR: Final = "hour"
DAY: Final = "day"
LATE: Final = "late"
CLOSED: Final = "closed"

SCHEMA: Final = pa.schema(
    [
        ("scope", pa.string()),
        ("date", pa.date32()),
        ("hour", pa.string()),
        ("build_id", pa.string()),
        ("manifests", pa.list_(pa.string())),
        ("settings", pa.string()),
        ("lost", pa.int64()),
        ("coverage_percent", pa.float64()),
        ("numbers", pa.list_(pa.int64())),
        ("is_charged", pa.bool_()),
    ]
)
"""`numbers`: usage rows expected and present, decisions expected and present."""

NAME: Final = "runs"
BUILD_ID: Final = "build_id"

Row = Mapping[str, Any]


@dataclass(slots=True)
class Builds:
    """The state of the tables.

    Attributes:
        ledger: as in a directory of tables, without `pending`: an unfinished build is in no row.
        hours: "DATE HOUR" -> build.
        days: date -> build.
        late: ("DATE HOUR", build) -> SHA-256 values of late manifests.
        charged: days with charges.
    """

    ledger: Ledger = field(default_factory=Ledger)
    hours: dict[str, str] = field(default_factory=dict)
    days: dict[str, str] = field(default_factory=dict)
    late: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    charged: set[str] = field(default_factory=set)

    def after(self, ledger: Ledger, hours: Iterable[str], charged: Collection[str], build_id: str) -> Builds:
        """Return the state after one roll-up.

        Args:
            ledger: the ledger that the roll-up wrote.
            hours: the hours that it built, as "DATE HOUR"; it built their days, too.
            charged: the days that it built with charges.
            build_id: its build.
        """
        built = set(hours)
        days = {key.split(" ")[0] for key in built}
        late = dict(self.late)
        for key, hashes in ledger.late.items():
            if new := hashes[len(self.ledger.late.get(key, ())) :]:
                late[key, build_id] = new
        return Builds(
            ledger,
            self.hours | dict.fromkeys(built, build_id),
            self.days | dict.fromkeys(days, build_id),
            late,
            (self.charged - days) | set(charged),
        )


def transaction_after(version: int) -> tuple[str, int]:
    """Return application and number of the transaction that publishes in Delta tables after a version of `runs`.

    Of two roll-ups that read the same version, both have the same number, so Delta takes only one.
    """
    return "sluice-rollup", version + 1


def builds_of(rows: Iterable[Row]) -> Builds:
    """Return the state of the tables from the rows of `runs`."""
    found = Builds()
    ledger = found.ledger
    for row in rows:
        date = row["date"].isoformat()
        key = f"{date} {row['hour']}"
        if row["scope"] == HOUR:
            _read_hour(found, key, row)
        elif row["scope"] == DAY:
            _read_day(found, date, row)
        elif row["scope"] == LATE:
            found.late[key, row["build_id"]] = row["manifests"]
            ledger.late.setdefault(key, []).extend(row["manifests"])
        elif row["scope"] == CLOSED:
            ledger.closed_through = date
    return found


def _read_hour(found: Builds, key: str, row: Row) -> None:
    if row["build_id"] is not None:  # otherwise only decisions are known to be lost in it
        found.hours[key] = row["build_id"]
        found.ledger.hours[key], found.ledger.built_with[key] = row["manifests"], row["settings"]
    if row["lost"]:
        found.ledger.lost[key] = row["lost"]


def _read_day(found: Builds, date: str, row: Row) -> None:
    if row["build_id"] is not None:
        found.days[date] = row["build_id"]
    if row["coverage_percent"] is not None:
        found.ledger.coverage[date] = row["coverage_percent"]
    if row["numbers"] is not None:
        found.ledger.accounts[date] = row["numbers"]
    if row["is_charged"]:
        found.charged.add(date)


def rows_by_date(builds: Builds) -> dict[datetime.date, list[dict[str, Any]]]:
    """Return the rows of `runs`, by date."""
    found: dict[datetime.date, list[dict[str, Any]]] = {}
    for row in _rows(builds):
        found.setdefault(row["date"], []).append(dict.fromkeys(SCHEMA.names) | row)
    return found


def _rows(builds: Builds) -> Iterator[dict[str, Any]]:
    ledger = builds.ledger
    for key in sorted({*ledger.hours, *ledger.lost}):
        manifests, settings = ledger.hours.get(key, []), ledger.built_with.get(key)
        build = {"build_id": builds.hours.get(key), "manifests": manifests, "settings": settings, "lost": ledger.lost.get(key, 0)}
        yield {"scope": HOUR, **_place(key), **build}
    for date in sorted({*builds.days, *ledger.coverage}):
        coverage = {"coverage_percent": ledger.coverage.get(date), "numbers": ledger.accounts.get(date)}
        yield {"scope": DAY, **_place(date), "build_id": builds.days.get(date), **coverage, "is_charged": date in builds.charged}
    for (key, build_id), manifests in sorted(builds.late.items()):
        yield {"scope": LATE, **_place(key), "build_id": build_id, "manifests": manifests}
    if ledger.closed_through is not None:
        yield {"scope": CLOSED, **_place(ledger.closed_through)}


def _place(key: str) -> dict[str, Any]:
    date, _, hour = key.partition(" ")
    return {"date": datetime.date.fromisoformat(date), "hour": hour or None}
