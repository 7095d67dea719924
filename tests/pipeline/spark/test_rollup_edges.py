"""Roll-ups at the ends of hours, with long windows, and with unusual names."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.duckdb.charges import UsedInDay, charges_of
from pipeline.duckdb.rollup import roll_up
from pipeline.report.page import draw_table
from pipeline.report.rollup_page import draw_rollup
from pipeline.rollup.prices import SKUS, Price, Prices
from pipeline.rollup.published import report_files
from pipeline.rollup.published.summary import clients, groups, summary_of
from pipeline.rollup.published.tables import read_table
from pipeline.rollup.settings import RollupResult, RollupSettings
from pipeline.rollup.tenants import read_tenants
from pipeline.text import table_lines
from tests.support.html_page import check_page
from tests.support.metering.metering_directory import counts_of_types, write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID, Event, Sensor
from tests.support.metering.metering_scene import START_MS

HOUR_MS = 3_600_000
CLIENTS = (("orders", "checkout"), ("lake", "load\ner"), ("lake", "tool"), ("search", "tool"))
GROUPS = (("", "checkout"), ("", "tool"), ("orders", ""), ("", "load\ner"))
TENANTS = (("orders", "", "shop"), ("lake", "", "data"), ("", "", "rest"))


def test_an_amount_is_rounded_once() -> None:
    """Half a GiB less one byte at a millionth per GiB costs 0.000000, and not the 0.000001 of rounding twice."""
    usage = [
        UsedInDay("2026-11-21", "t", "User:a", name, [produced * (sku.column == "produce_bytes") for sku in SKUS])
        for name, produced in AMOUNTS
    ]
    prices = Prices("EUR", (Price("produced_gib", "0001-01-01", None, Decimal("0.000001")),))
    found = {charge.used.client_id: charge.amount for charge in charges_of(usage, prices, None)}
    assert found == {"below": Decimal(0), "half": Decimal("0.000001"), "much": Decimal(2**33) / 10**6}


AMOUNTS = (("below", 2**29 - 1), ("half", 2**29), ("much", 2**63 - 1))


def write_one(directory: Any, events: list[Event], *, hour: str, window_ms: int = 1_000, groups: Any = (("", "checkout"),)) -> Any:
    """Write one file set of the hour `hour` with the decisions of these groups, which are (user, client-id)."""
    sensors = {ref: Sensor(ref, 1_000.0, window_ms=window_ms) for ref in range(len(groups))}
    for seq, event in enumerate(events):
        sensors[event.group].take(event, seq)
    rows = [row.as_dict() for sensor in sensors.values() for row in sensor.rows]
    place = {"run_id": RUN_ID, "proxy_id": PROXY_ID}
    sensor = {"quota_type": "Produce", "scope": "broker", "node_id": 1, "num_samples": 11, "window_ms": window_ms, "first_seen_ms": 0}
    named = {"run_id": RUN_ID, "principal_type": "User", "name_form": "plain"}
    tables = {
        "samples": rows,
        "dim_group": [
            {**place, **sensor, "group_ref": ref, "tag_user": user, "tag_client_id": client_id}
            for ref, (user, client_id) in enumerate(groups)
        ],
        "dim_client": [{**named, "client_ref": ref, "principal": user, "client_id": its} for ref, (user, its) in enumerate(CLIENTS)],
    }
    counts = counts_of_types(rows, dict.fromkeys(sensors, "Produce"))
    span = (0, len(events) - 1, events[0].ts_ms, events[-1].ts_ms)
    write_file_set(directory, tables, *span, counts, hour=("2026-11-21", hour), final=True)
    return directory


def test_a_sample_that_began_before_the_hour_counts_in_the_hour_of_its_file(tmp_path: Path) -> None:
    """A sample that began before the hour of its file counts in the hour of the file, which has one row per group."""
    begin = START_MS + HOUR_MS
    events = [Event(0, begin - 300, 9_000), Event(0, begin + 10, 9_000), Event(0, begin + 60_500, 9_000)]
    source = write_one(tmp_path / "in", events, hour="13")
    roll_up(RollupSettings(str(source), tmp_path / "out", ("minute", "hour", "day")))
    for level in ("hour", "day"):
        [row] = read_table(tmp_path / "out", f"decisions_{level}")
        assert (row["decisions"], row["units"], f"{row['start']:%H}") == (3, 27_000, "13" if level == "hour" else "00")
        assert row["throttle_ms_p50"] is not None
    minutes = read_table(tmp_path / "out", "decisions_minute")
    assert sorted((f"{row['start']:%H:%M}", row["decisions"]) for row in minutes) == [("13:00", 2), ("13:01", 1)]


def test_a_long_sample_is_spread_over_all_its_seconds(tmp_path: Path) -> None:
    """With windows of 5 s the units of a sample are distributed over its seconds in proportion to time."""
    events = [Event(0, START_MS + 250 * at, 100) for at in range(20)]
    source = write_one(tmp_path / "in", events, hour="12", window_ms=5_000)
    roll_up(RollupSettings(str(source), tmp_path / "out"))
    seconds = {row["second_ms"]: row["units"] for row in read_table(tmp_path / "out", "rate_series")}
    assert [seconds[START_MS + 1_000 * at] for at in range(5)] == pytest.approx([400] * 5, abs=100)  # by time, not by event
    assert sum(seconds.values()) == 2_000
    [row] = read_table(tmp_path / "out", "decisions_hour")
    assert row["decisions"] == 20


def test_a_group_belongs_to_the_tenant_of_its_clients(tmp_path: Path) -> None:
    """A group belongs to the tenant that all its clients share, also with a catch-all last line, and patterns match names with line
    breaks.
    """
    (tmp_path / "tenants.csv").write_text("user,client_id,tenant\n" + "".join(f"{','.join(line)}\n" for line in TENANTS))
    events = [Event(ref, START_MS + ref, 100) for ref in range(len(GROUPS))]
    source = write_one(tmp_path / "in", events, hour="12", groups=GROUPS)
    roll_up(RollupSettings(str(source), tmp_path / "out", tenants=tuple(read_tenants(tmp_path / "tenants.csv"))))
    found = {(row["tag_user"], row["tag_client_id"]): row["tenant"] for row in read_table(tmp_path / "out", "decisions_hour")}
    assert found == {("", "checkout"): "shop", ("", "tool"): "rest", ("orders", ""): "shop", ("", "load\ner"): "data"}


USAGE_COLUMNS = ("requests", "produce_bytes", "fetch_bytes", "handler_ns", "throttled_requests", "throttle_ms", "connections_opened")
WAITED = ("waited_requests", "waited_ms")


def put_rows(directory: Path, table: str, place: str, names: tuple[str, ...], **values: Any) -> None:
    """Write one published row: 1 in every column that is not given."""
    row = {"tenant": "t", "principal": "User:a", "client_id": "c", **dict.fromkeys(names, 1), **values}
    path = directory / table / place / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([row]), path)


def test_each_hour_is_added_up_once_whatever_levels_there_are(tmp_path: Path) -> None:
    """Days, hours, minutes and adjustments of one total each count once; a day without columns about waits takes its throttled requests
    as waits.
    """
    both = (*USAGE_COLUMNS, *WAITED)
    put_rows(tmp_path, "usage_day", "date=2026-11-18", USAGE_COLUMNS, throttled_requests=5, requests=1_000)
    put_rows(tmp_path, "usage_hour", "date=2026-11-18/hour=01", both, requests=1_000)
    put_rows(tmp_path, "usage_hour", "date=2026-11-19/hour=01", both, requests=200, waited_requests=0)
    put_rows(tmp_path, "usage_minute", "date=2026-11-19/hour=01", both, requests=200)
    put_rows(tmp_path, "usage_minute", "date=2026-11-19/hour=02", both, requests=30)
    put_rows(tmp_path, "usage_adjustment", "date=2026-11-18/batch=x", both, requests=4)
    [row] = clients(tmp_path)
    assert (row["requests"], row["waited_requests"]) == (1_234, 5 + 0 + 1 + 1)


def test_the_bound_of_several_days_is_their_mean(tmp_path: Path) -> None:
    """The bound of several days is their mean by active seconds, without the days that have no bound."""
    names = ("decisions", "units", "throttled", "throttle_ms", "waited", "waited_ms", "utilisation_max_percent", "observed_max")
    group = dict.fromkeys(("scope", "node", "listener", "tag_user", "tag_ip", "tags")) | {"tag_client_id": "c", "proxy_id": "p"}
    reported = {"quota_type": "Produce", "throttle_ms_max": 7, **group}
    for day, bound, seconds in ((18, 100.0, 10), (19, 400.0, 20), (20, None, 70)):
        put_rows(tmp_path, "decisions_day", f"date=2026-11-{day}", names, bound_mean=bound, seconds_active=seconds, **reported)
    [row] = groups(tmp_path)
    assert (row["bound_mean"], row["decisions"], row["throttle_ms_max"], row["group"]) == (300.0, 3, 7, "client-id c")


def test_a_name_cannot_break_a_line() -> None:
    """Line breaks and terminal escapes in client names are printed as escape sequences."""
    assert list(table_lines(("name", "n"), [("x\ny\x1b[31m", 1)])) == ["name          n", "x\\ny\\x1b[31m  1"]


def put_group_rows(directory: Path, proxy_id: str, **series: Any) -> None:
    """Write one group of a proxy, metered at level `sample`: it was throttled at unknown times."""
    group = dict.fromkeys(("scope", "node", "listener", "tag_user", "tag_ip", "tags")) | {"tag_client_id": "c", "proxy_id": proxy_id}
    reported = {
        "quota_type": "Produce",
        "throttle_ms_max": 7,
        "bound_mean": 9.0,
        "bound": 9.0,
        "seconds_active": 1,
        "observed_max": 9.5,
        **group,
    }
    names = ("decisions", "units", "throttled", "throttle_ms", "waited", "waited_ms", "utilisation_max_percent")
    put_rows(directory, "decisions_day", f"date=2026-11-21/{proxy_id}", names, **reported)
    put_rows(directory, "rate_series", f"date=2026-11-21/hour=12/{proxy_id}", names, second_ms=START_MS, **reported, **series)


def test_the_page_tells_proxies_apart_what_it_does_not_know_and_what_it_costs(tmp_path: Path) -> None:
    """The page shows equal groups with their proxy, says that waits are unknown at level `sample`, and adds up charges with their
    adjustments.
    """
    for proxy_id in ("east", "west"):
        put_group_rows(tmp_path, proxy_id)
    charge = {"sku": "produced_gib", "unit": "GiB", "currency": "EUR", "quantity": Decimal("1.5")}
    put_rows(tmp_path, "chargeback_day", "date=2026-11-21", ("units",), amount=Decimal("1.250000"), **charge)
    put_rows(tmp_path, "chargeback_adjustment", "date=2026-11-21/batch=x", ("units",), amount=Decimal("0.000001"), **charge)
    page = draw_rollup(tmp_path, RollupResult())
    check_page(page)
    assert page.count("client-id c @ east") == page.count("client-id c @ west") > 1
    assert "no client waited" not in page
    assert "No request had to wait" not in page
    assert page.count("not known at level sample") == page.count("waits are not listed") == 2
    assert "1.250001" in page
    assert [str(row["amount"]) for row in summary_of(tmp_path, RollupResult())["charges"]] == ["1.250001"]


def test_a_time_is_no_number_in_a_table() -> None:
    """Numbers with and without a unit are right-aligned; times and names are left-aligned."""
    row = ("1,234", "7.26 min", "25.3 %", "-", "600 kB/s", "2026-11-20 23:59:02", "4 of 5", "data")
    table = draw_table(tuple("abcdefgh"), [row])
    assert [f'<td class="number">{cell}</td>' in table for cell in row] == [True] * 5 + [False] * 3


def test_what_a_report_draws_is_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a table has more rows than a page may show, the oldest hours are left out."""
    monkeypatch.setattr(report_files, "ROWS_MAX", 2)
    for hour in (11, 12, 13):
        put_rows(tmp_path, "escapes", f"date=2026-11-21/hour={hour}", ("n",))
    assert [row["hour"] for row in read_table(tmp_path, "escapes")] == ["12", "13"]
