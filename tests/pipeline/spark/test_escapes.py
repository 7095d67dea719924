"""Signs that a client tries to bypass a quota."""

from typing import Any

import pyarrow as pa

from pipeline.duckdb.database import database
from pipeline.duckdb.escapes import escapes, see_client_seconds
from pipeline.rollup.content.escape_limits import BEFORE_MAX
from pipeline.rollup.published.pressure import pressure_of

T = 1_795_262_400_000


NAMES = ("date", "hour", "tenant", "principal", "client_id", "second_ms", "waited_requests", "connections_opened")


def escapes_in(seconds: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return the signs in the usage by second of some clients, with the columns NAMES."""
    with database() as made:
        made.number_hours((row[0], row[1]) for row in seconds)
        made.put("given_seconds", pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in seconds]))
        made.run("""
            CREATE TABLE numbered AS SELECT *, dense_rank() OVER (ORDER BY tenant, principal, client_id) AS gold_client_number
            FROM given_seconds JOIN hours USING (date, hour)""")
        made.run("CREATE TABLE gold_clients AS SELECT DISTINCT gold_client_number, tenant, principal, client_id FROM numbered")
        made.run("CREATE VIEW usage_here AS SELECT * EXCLUDE (date, hour, tenant, principal, client_id, hour_ms) FROM numbered")
        see_client_seconds(made)
        return made.table(escapes()).to_pylist()


def rows(principal: str, client_id: str, seconds: range, *, throttled: int = 0, opened: int = 0) -> list[tuple[Any, ...]]:
    return [("2026-11-21", "12", "t", principal, client_id, T + 1_000 * second, throttled, opened) for second in seconds]


def test_who_reconnects_or_goes_on_under_another_name_is_named() -> None:
    """New connections right after waits and a successor of a throttled client-id are reported; steady and unrelated clients are not."""
    seconds = [
        *rows("User:eve", "app-1", range(30), throttled=3),
        *rows("User:eve", "app-2", range(32, 60)),
        *rows("User:mallory", "m", range(10)),
        *rows("User:mallory", "m", range(10, 20), throttled=1, opened=2),
        *rows("User:mallory", "m", range(100, 130)),
        *rows("User:always", "a", range(1), throttled=1, opened=2),
        *rows("User:always", "a", range(1, 60), throttled=1, opened=2),
        *rows("User:begins", "b", range(1), opened=9),
        *rows("User:begins", "b", range(1, 60), throttled=1),
        *rows("User:steady", "s", range(60), throttled=1),
        *rows("User:steady", "s-too", range(5, 60)),
        *rows("User:opener", "o", range(60), opened=2),
        *rows("User:ANONYMOUS", "etl-1", range(30), throttled=3),
        *rows("User:ANONYMOUS", "etl-2", range(31, 60)),
        *rows("User:ANONYMOUS", "dashboard", range(31, 60)),
    ]
    found = {(row["principal"], row["client_id"], row["kind"], row["to_client_id"]) for row in escapes_in(seconds)}
    assert found == {
        ("User:eve", "app-1", "rotates", "app-2"),
        ("User:mallory", "m", "reconnects", None),
        ("User:always", "a", "reconnects", None),
        ("User:ANONYMOUS", "etl-1", "rotates", "etl-2"),
    }


def test_a_full_hour_hides_no_successor_and_makes_none() -> None:
    """A successor that begins just after the full hour is reported; a client that has existed for hours is not, although it was idle at
    the full hour.
    """

    def later(many: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [(row[0], "13", *row[2:5], row[5] + 3_600_000, *row[6:]) for row in many]

    seconds = [
        *rows("User:eve", "app-1", range(3_500, 3_590), throttled=3),
        *later(rows("User:eve", "app-2", range(5, 60))),
        *rows("User:old", "one", range(3_500, 3_600), throttled=3),
        *later(rows("User:old", "one", range(3), throttled=3)),
        *rows("User:old", "sparse", range(0, 3_600, 30)),
        *later(rows("User:old", "sparse", range(20, 3_600, 30))),
    ]
    found = {(row["principal"], row["client_id"], row["kind"], row["to_client_id"]) for row in escapes_in(seconds)}
    assert found == {("User:eve", "app-1", "rotates", "app-2")}


def test_a_crowd_under_one_name_is_not_compared_all_with_all() -> None:
    """2,000 throttled client-ids of one principal within a minute give a few rows each, and a successor is still found."""
    crowd = 2_000
    seconds = [("2026-11-21", "12", "t", "User:ANONYMOUS", f"client-{at:04d}", T + 25 * at, 1, 0) for at in range(crowd)]
    found = {(row["client_id"], row["to_client_id"]) for row in escapes_in(seconds)}
    assert len(found) <= BEFORE_MAX * crowd
    assert {(f"client-{at:04d}", f"client-{at + 1:04d}") for at in range(crowd - 1)} <= found


def test_offered_load_counts_what_waits_kept_back() -> None:
    """Two connections that wait half the time have an offered load of twice their usage; without waits both values are equal."""
    series = [{"second_ms": T + 1_000 * at, "units": 100, "bound": 90.0} for at in range(100)]
    throttle_windows = [{"begin_ms": T, "end_ms": T + 60_000, "throttle_ms": 100_000, "waiting_max": 2}]
    pressed = pressure_of(series, throttle_windows, 1.0)
    assert (pressed.goodput, pressed.offered, pressed.bound) == (100.0, 200.0, 90.0)
    assert pressed.drain_ms(50) == 60_000
    at_ease = pressure_of(series, [], 1.0)
    assert (at_ease.goodput, at_ease.offered, at_ease.drain_ms(100)) == (100.0, 100.0, 0.0)


def test_hours_that_the_series_lacks_do_not_lower_the_goodput() -> None:
    """A group's rate and waits come from the hours that the series covers, those in which it waited most."""
    hours = (T, T + 3_600_000, T + 5 * 3_600_000)
    series = [{"second_ms": begin + 1_000 * at, "units": 100, "bound": 90.0, "throttled": 1} for begin in hours for at in range(3_600)]
    throttle_windows = [{"begin_ms": T + 3 * 3_600_000, "end_ms": T + 3 * 3_600_000 + 50, "throttle_ms": 50, "waiting_max": 1}]
    pressed = pressure_of(series, throttle_windows, 1.0)
    assert (pressed.goodput, pressed.offered, pressed.drains_ms, pressed.is_listed) == (100.0, 100.0, [], False)


def test_waits_that_were_not_applied_keep_nothing_back() -> None:
    """In `observe` the offered load equals the usage, and the decided waits are reported separately."""
    series = [{"second_ms": T + 1_000 * at, "units": 100, "bound": 90.0} for at in range(100)]
    would = {"begin_ms": T, "end_ms": T + 60_000, "throttle_ms": 100_000, "waiting_max": 2, "applied": False}
    pressed = pressure_of(series, [would], 1.0)
    assert (pressed.goodput, pressed.offered, pressed.drain_ms(50), pressed.waiting_max, pressed.would_ms) == (100.0, 100.0, 0.0, 0, 60_000)
    both = pressure_of(
        series, [would, {**would, "begin_ms": T + 70_000, "end_ms": T + 80_000, "throttle_ms": 10_000, "applied": True}], 1.0
    )
    assert (both.drain_ms(50), both.would_ms, both.offered) == (10_000, 60_000, 100 / 0.95)
