"""The roll-up from metering files to published tables."""

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import file_sha256
from pipeline.report.rollup_page import draw_rollup
from pipeline.rollup.coverage import coverage_by_hour, lost_between
from pipeline.rollup.inputs import find_inputs, hashes_by_hour
from pipeline.rollup.ledger import Ledger, hour_key, read_ledger, write_ledger
from pipeline.rollup.plan import plan_of
from pipeline.rollup.prices import read_prices
from pipeline.rollup.published.summary import lines_of, summary_of
from pipeline.rollup.published.tables import read_table
from pipeline.rollup.settings import RollupSettings, plan_local
from pipeline.rollup.tenants import TenantLine, read_tenants
from proxy.metering.forget import forget_user
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import CAST, PRICES, FirstHour, manifests, two_hours
from tests.support.html_page import check_page
from tests.support.metering.metering_scene import START_MS, write_scene
from tests.support.metering.metering_writer_fixture import WALL_MS, MeteringWriterFixture

SUMS = (
    "requests",
    "request_bytes",
    "response_bytes",
    "produce_bytes",
    "fetch_bytes",
    "handler_ns",
    "throttled_requests",
    "throttle_ms",
    "waited_requests",
    "waited_ms",
)


def raw_rows(directory: Path, table: str) -> list[dict[str, Any]]:
    return [row for path in sorted((directory / table).rglob("*.parquet")) for row in pq.read_table(path, partitioning=None).to_pylist()]


def expected_usage(directory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The reference loop: sums and percentiles by (hour, client-id)."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in raw_rows(directory, "usage"):
        hour = f"{row['second_ms'] // 3_600_000 % 24:02d}"
        total = found.setdefault((hour, CAST[row["client_ref"]].client_id), dict.fromkeys(SUMS, 0) | {"seconds": {}})
        for name in SUMS:
            total[name] += row[name]
        seconds = total["seconds"]
        seconds[row["second_ms"]] = seconds.get(row["second_ms"], 0) + row["produce_bytes"] + row["fetch_bytes"]
    return found


def test_a_late_file_opens_its_hour_again(spark: Any, first_hour: FirstHour) -> None:
    """Hours have the sums of their files, by client and to the byte, and a late file changes only its own hour and day."""
    from pipeline.spark.rollup.rollup import roll_up

    source, out, settings, first = first_hour.source, first_hour.out, first_hour.settings, first_hour.result
    assert (first.hours, first.days, first.coverage) == (1, 1, {"2026-11-21": 100.0})
    kept = next((out / "usage_hour" / "date=2026-11-21" / "hour=12").glob("*.parquet")).read_bytes()
    again = roll_up(spark, settings)
    assert (again.hours, again.coverage) == (0, first.coverage)

    first_hour.let_come()
    second = roll_up(spark, settings)
    assert (second.hours, second.days) == (1, 1)
    assert next((out / "usage_hour" / "date=2026-11-21" / "hour=12").glob("*.parquet")).read_bytes() == kept

    hours = read_table(out, "usage_hour")
    expected = expected_usage(source)
    assert {(row["hour"], row["client_id"]) for row in hours} == set(expected)
    for row in hours:
        its = expected[row["hour"], row["client_id"]]
        assert {name: row[name] for name in SUMS} == {name: its[name] for name in SUMS}
        rates = list(its["seconds"].values())
        assert row["seconds_active"] == len(rates)
        assert row["bytes_per_second_p95"] == pytest.approx(np.percentile(rates, 95), rel=1e-12)
        assert row["coverage_percent"] == 100.0
    days = read_table(out, "usage_day")
    assert {row["client_id"]: row["tenant"] for row in days} == {"checkout": "shop", "loader": "data", "audit-log": "(unassigned)"}
    for row in days:
        assert row["requests"] == sum(of_hour["requests"] for of_hour in hours if of_hour["client_id"] == row["client_id"])
    check_decisions(source, out)
    page = draw_rollup(out, second)
    check_page(page)
    assert page.count('class="bound"') >= 4
    assert "shop: client-id checkout" in page  # the tenants file has its user, and its group has only the client-id


def check_decisions(source: Path, out: Path) -> None:
    """Assert that decisions have the sums of the samples, by group, and that waits, throttle windows, histogram and series agree."""
    samples = raw_rows(source, "samples")
    days = {row["tag_client_id"]: row for row in read_table(out, "decisions_day")}
    for ref, client in enumerate(CAST):
        its, row = [sample for sample in samples if sample["group_ref"] == ref], days[client.client_id]
        assert (row["decisions"], row["units"]) == (sum(sample["n"] for sample in its), sum(sample["sum"] for sample in its))
        assert (row["throttled"], row["throttle_ms"]) == (
            sum(sample["throttled_n"] for sample in its),
            sum(sample["throttle_ms_sum"] for sample in its),
        )
        waits = [ms for sample in its for ms in sample["thr_ms"] if ms > 0]
        if waits:
            assert row["throttle_ms_p95"] == pytest.approx(np.percentile(waits, 95), rel=1e-12)
            assert row["utilisation_max_percent"] == pytest.approx(100 * max(sample["max_observed"] for sample in its) / client.bound)
        assert row["bound_mean"] == client.bound
        of_group = {
            table: [found for found in read_table(out, table) if found["tag_client_id"] == client.client_id]
            for table in ("throttle_histogram", "throttle_stretches", "rate_series")
        }
        assert sum(found["n"] for found in of_group["throttle_histogram"]) == len(waits)
        assert sum(found["throttled"] for found in of_group["throttle_stretches"]) == len(waits)
        assert sum(found["units"] for found in of_group["rate_series"]) == row["units"]
        throttle_windows = sorted((found["hour"], found["begin_ms"], found["end_ms"]) for found in of_group["throttle_stretches"])
        assert all(end < begin for (hour, _, end), (its_hour, begin, _) in itertools.pairwise(throttle_windows) if hour == its_hour)
    assert days["checkout"]["throttled"] > 50


def only_observed(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Observe the first client's quota, excuse every second wait of the other's, and remove the lists of one sample."""
    for row in tables["samples"]:
        row["applied_ms"] = [0 if row["group_ref"] == 0 else -1 if at % 2 else ms for at, ms in enumerate(row["applied_ms"])]
        row["applied_ms_sum"] = sum(max(ms, 0) for ms in row["applied_ms"])
    for row in tables["usage"]:
        row |= {"waited_requests": 0, "waited_ms": 0} if row["client_ref"] == 0 else {"waited_requests": None, "waited_ms": None}
    unlisted = next(row for row in tables["samples"] if row["throttled_n"] > 0 and row["applied_ms_sum"] > 0)
    unlisted |= dict.fromkeys(("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms"))


def test_who_did_not_have_to_wait_is_not_said_to_have_waited(spark: Any, tmp_path: Path) -> None:
    """Waits that were observed or excused are reported as not applied in the tables, in the text and on the page."""
    from pipeline.spark.rollup.rollup import roll_up

    source, out = two_hours(tmp_path / "in", mutate=only_observed), tmp_path / "out"
    result = roll_up(spark, RollupSettings(str(source), out, ("day",)))
    assert result.hours == 2
    samples = raw_rows(source, "samples")
    for ref, client in enumerate(CAST):
        own = [row for row in samples if row["group_ref"] == ref]
        waits = [(ms, done) for row in own if row["thr_ms"] for ms, done in zip(row["thr_ms"], row["applied_ms"], strict=True) if ms > 0]
        unlisted = [row for row in own if row["thr_ms"] is None]
        applied = [ms for ms, done in waits if done > 0]
        [day] = [row for row in read_table(out, "decisions_day") if row["tag_client_id"] == client.client_id]
        assert day["throttled"] == len(waits) + sum(row["throttled_n"] for row in unlisted)
        assert day["waited"] == len(applied) + sum(row["throttled_n"] for row in unlisted)
        assert day["waited_ms"] == sum(applied) + sum(row["throttle_ms_sum"] for row in unlisted)
        for is_applied, expected in ((True, len(applied)), (False, len(waits) - len(applied))):
            for table, count in (("throttle_stretches", "throttled"), ("throttle_histogram", "n")):
                rows = [row for row in read_table(out, table) if row["tag_client_id"] == client.client_id and row["applied"] is is_applied]
                assert sum(row[count] for row in rows) == expected, (table, is_applied)
    checkout = next(row for row in summary_of(out, result)["groups"] if row["group"] == "client-id checkout")
    assert (checkout["throttled"] > 50, checkout["waited"], checkout["waited_ms"]) == (True, 0, 0)
    for row in read_table(out, "usage_day"):
        waited = (0, 0) if row["client_id"] == CAST[0].client_id else (row["throttled_requests"], row["throttle_ms"])  # an older file
        assert (row["waited_requests"], row["waited_ms"]) == waited
    lines = list(lines_of(out, result))
    assert any("would have waited" in line for line in lines)
    assert next(line for line in lines if line.startswith("client-id checkout")).split()[-4:-2] == ["0", "ms"]
    page = draw_rollup(out, result)
    check_page(page)
    assert "no client; would have, " in page
    assert page.count('class="would"') > 0 < page.count('class="waiting"')


def shift_a_second(tables: dict[str, list[dict[str, Any]]]) -> None:
    tables["usage"][0]["second_ms"] += 86_400_000


def stranger(tables: dict[str, list[dict[str, Any]]]) -> None:
    tables["usage"][1]["client_ref"] = 77


def lost_group(tables: dict[str, list[dict[str, Any]]]) -> None:
    del tables["dim_group"][1]


def test_rows_that_cannot_count_are_set_aside_with_the_reason(spark: Any, tmp_path: Path) -> None:
    """A second of another day, an unknown client and an unknown group go to the quarantine with their reason, and the other sums are
    unchanged.
    """
    from pipeline.spark.rollup.rollup import roll_up

    def spoil(tables: dict[str, list[dict[str, Any]]]) -> None:
        for change in (shift_a_second, stranger, lost_group):
            change(tables)

    source = write_scene(tmp_path / "in", 10, clients=CAST, mutate=spoil)
    result = roll_up(spark, RollupSettings(str(source), tmp_path / "out"))
    rows = read_table(tmp_path / "out", "quarantine")
    reasons = {(row["table"], row["problem"]): json.loads(row["row"]) for row in rows}
    assert set(reasons) == {
        ("usage", "second_ms is not in the hour of its file"),
        ("usage", "client_ref is in no dim_client"),
        ("samples", "group_ref is in no dim_group"),
    }
    assert result.usage_quarantined == 2
    aside = [
        row for row in raw_rows(source, "samples") if row["group_ref"] not in {row["group_ref"] for row in raw_rows(source, "dim_group")}
    ]
    assert result.decisions_quarantined == len(aside) > 0
    [account] = result.accounts.values()
    assert account.decisions.expected - account.decisions.present == sum(row["n"] for row in aside)
    assert sum(row["requests"] for row in read_table(tmp_path / "out", "usage_hour")) < sum(
        row["requests"] for row in raw_rows(source, "usage")
    )


def test_what_is_set_aside_is_not_covered(tmp_path: Path) -> None:
    """Rows in the quarantine lower the coverage of their hour, for usage and for decisions."""
    [one] = find_inputs(write_scene(tmp_path, 5, clients=CAST))
    rows, decisions = one.rows("usage"), one.manifest.last_seq + 1
    assert coverage_by_hour([one], {}, {}, {})[one.hour].percent == 100.0
    assert coverage_by_hour([one], {one.manifest.file_set: 1}, {}, {})[one.hour].usage.present == rows - 1
    assert coverage_by_hour([one], {}, {one.manifest.file_set: decisions}, {})[one.hour].percent == 0.0


@pytest.mark.parametrize(("table", "column"), [("usage", "requests"), ("samples", "sum")])
def test_sums_that_differ_from_the_manifest_end_the_run(spark: Any, tmp_path: Path, table: str, column: str) -> None:
    """A sum that is one unit above the manifest's is an error with both sums, and nothing is published."""
    from pipeline.spark.rollup.rollup import roll_up

    def more(tables: dict[str, list[dict[str, Any]]]) -> None:
        tables[table][0][column] += 1

    source = write_scene(tmp_path / "in", 5, clients=CAST, mutate=more)
    with pytest.raises(IncompleteError, match=r"add up to .*the manifest has"):
        roll_up(spark, RollupSettings(str(source), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_is_one_line(spark: Any, tmp_path: Path) -> None:
    """A file of the right length that is not Parquet ends the run with one line that names it and `verify-manifests`, and nothing is
    published.
    """
    from pipeline.spark.rollup.rollup import roll_up

    source = write_scene(tmp_path / "in", 3, clients=CAST)
    path = next((source / "usage").rglob("*.parquet"))
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(BadInputError, match=f"{path}: not a readable Parquet file; .*verify-manifests") as caught:
        roll_up(spark, RollupSettings(str(source), tmp_path / "out"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("table", ["usage", "dim_client", "samples", "dim_group"])
def test_a_file_of_another_program_is_reported_by_its_columns(spark: Any, tmp_path: Path, table: str) -> None:
    """A Parquet file with other columns is reported as a file of another program, and nothing is published."""
    from pipeline.spark.rollup.rollup import roll_up

    source = write_scene(tmp_path / "in", 3, clients=CAST)
    [path] = (source / table).rglob("*.parquet")
    [manifest] = manifests(source)
    put_another(path, manifest)
    with pytest.raises(BadInputError, match=f"^{path}: has no column .* of table {table}; it was written by another program") as caught:
        roll_up(spark, RollupSettings(str(source), tmp_path / "out"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def put_another(path: Path, manifest: Path) -> None:
    """Replace the file `path` by another table, and adapt the manifest."""
    reported = json.loads(manifest.read_text())
    pq.write_table(pa.table({"hits": [1, 2, 3], "url": ["a", "b", "c"]}), path)
    [entry] = [entry for entry in reported["files"] if path.as_posix().endswith(entry["path"])]
    entry |= {"bytes": path.stat().st_size, "sha256": file_sha256(path), "rows": 3}
    manifest.write_text(json.dumps(reported))


def test_a_file_set_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    """The same manifest in two places is read once; a different one of the same name is refused."""
    source = write_scene(tmp_path, 5, clients=CAST)
    first = manifests(source)[0]
    copy = first.parents[1] / "hour=13" / first.name
    copy.parent.mkdir()
    shutil.copy(first, copy)
    assert len(find_inputs(source)) == 1
    copy.write_text(copy.read_text().replace('"level": "packed"', '"level": "trace"'))
    with pytest.raises(BadInputError, match="same name"):
        find_inputs(source)


def test_file_sets_without_a_decision_are_distinguished(tmp_path: Path) -> None:
    """File sets without decisions, which all have the same first number, all count."""
    proxy = MeteringWriterFixture(tmp_path)
    proxy.writer.start()
    client = {"client_ref": 0, "principal_type": "User", "principal": "a", "client_id": "c", "name_form": "plain"}
    proxy.meter.add_fact({"client": client})
    for number in range(3):
        row = (0, 1, "1", "default", "produce", 5, 500, 100, 400, 0, 0, 0, 0, 0, 1)
        proxy.meter.add_fact({"usage": {"second_ms": WALL_MS + 1_000 * number, "rows": [row]}})
        proxy.meter.flush()
        proxy.writer.rotate()
    assert proxy.writer.stop(10.0)
    inputs = find_inputs(tmp_path)
    assert [item.manifest.part for item in inputs] == list(range(len(inputs)))
    assert sum(item.manifest.usage.requests for item in inputs) == 15


def drop_manifests(source: Path) -> None:
    shutil.rmtree(source / "manifests")


def drop_a_file(source: Path) -> None:
    next((source / "usage").rglob("*.parquet")).unlink()


@pytest.mark.parametrize(
    ("options", "break_it", "code", "message"),
    [
        (["--level", "week"], None, 2, "week"),
        (["--from", "yesterday"], None, 2, "yesterday"),
        (["--from", "2026-13-45"], None, 2, "2026-13-45"),
        (["--to", "2026-11-21T99"], None, 2, "2026-11-21T99"),
        (["--from", "2026-11-23"], None, 3, "no file set"),
        (["--from", "2026-11-23", "--to", "2026-11-20"], None, 2, "before"),
        (["--close-through", "soon"], None, 2, "soon"),
        (["--close-through", "2026-99-99"], None, 2, "2026-99-99"),
        (["--tenants", "absent.csv"], None, 2, "absent.csv"),
        ([], drop_manifests, 3, "no manifest"),
        ([], drop_a_file, 3, "is missing"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, options: list[str], break_it: Callable[[Path], None] | None, code: int, message: str
) -> None:
    """A wrong option or file gives one line that names it, before Spark starts, and nothing is written."""
    source = write_scene(tmp_path / "in", 3, clients=CAST)
    if break_it is not None:
        break_it(source)
    outcome = CliRunner().invoke(meter, ["rollup", "--in", str(source), "--out", str(tmp_path / "out"), *options])
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (code, 1)
    assert message in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_a_day_that_is_not_covered_gives_exit_code_3_in_each_run(tmp_path: Path) -> None:
    """A run that finds nothing new ends with exit code 3 as long as a requested day is not fully covered."""
    source, out = write_scene(tmp_path / "in", 3, clients=CAST), tmp_path / "out"
    [one] = find_inputs(source)
    settings = RollupSettings(str(source), out)
    out.mkdir()
    coverage = {"2026-11-20": 99.5, "2026-11-21": 100.0}
    write_ledger(out, Ledger(settings=settings.fingerprint, hours={hour_key(one.hour): [one.sha256]}, coverage=coverage))
    command = ["rollup", "--in", str(source), "--out", str(out)]
    reported = CliRunner().invoke(meter, command)
    assert (reported.exit_code, "no new file sets" in reported.stdout, "99.5 %" in reported.stdout, "2026-11-20" in reported.stdout) == (
        3,
        True,
        True,
        True,
    )
    assert json.loads(CliRunner().invoke(meter, [*command, "--format", "json"]).stdout)["coverage_percent"] == coverage
    assert CliRunner().invoke(meter, [*command, "--from", "2026-11-21"]).exit_code == 0
    assert {path.name for path in out.iterdir()} == {"ledger.json", "report.html", "summary.json"}, "drawn, since no run had come so far"


def test_a_directory_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    """A roll-up refuses a directory that holds other files."""
    source = write_scene(tmp_path / "in", 3, clients=CAST)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    outcome = CliRunner().invoke(meter, ["rollup", "--in", str(source), "--out", str(tmp_path / "out")])
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (2, 1)
    assert "is not empty" in outcome.stderr


def test_a_tenants_file_is_read_with_its_patterns(tmp_path: Path) -> None:
    """In a tenants file `*` and `?` are wildcards, an empty field matches any name, and all other characters are literal."""
    path = tmp_path / "tenants.csv"
    path.write_text("user,client_id,tenant\nalice,,a\n,etl-*,b\nx.y?,[z],c\n")
    assert [(line.user, line.client_id, line.tenant) for line in read_tenants(path)] == [
        (r"(?s)^alice\z", r"(?s)^.*\z", "a"),
        (r"(?s)^.*\z", r"(?s)^etl\-.*\z", "b"),
        (r"(?s)^x\.y.\z", r"(?s)^\[z\]\z", "c"),
    ]
    path.write_text("\ufeffuser,client_id,tenant\nalice,,a\n", encoding="utf-8")  # a byte order mark, as spreadsheets write it
    assert [line.tenant for line in read_tenants(path)] == ["a"]
    path.write_text('user,client_id,tenant\nalice,,"a\nbob,,b\n')
    with pytest.raises(BadInputError, match="cannot be read as CSV"):
        read_tenants(path)
    path.write_text("user,tenant\n")
    with pytest.raises(BadInputError, match="user,client_id,tenant"):
        read_tenants(path)


def expected_amounts(rows: list[dict[str, Any]]) -> dict[tuple[str, str], Decimal]:
    """Return the amount of each client by client-id and SKU: rounded once, half up, to six places."""
    amounts: dict[tuple[str, str], Decimal] = {}
    for ref, client in enumerate(CAST):
        own = [row for row in rows if row["client_ref"] == ref]
        gib = Decimal("450.25") if client.user == "orders" else Decimal("900.5")
        for sku, units, size, price in (
            ("produced_gib", sum(row["produce_bytes"] for row in own), 2**30, gib),
            ("million_requests", sum(row["requests"] for row in own), 10**6, Decimal(12)),
        ):
            if units:
                amounts[client.client_id, sku] = (units * price / size).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return amounts


def test_a_price_that_applies_to_no_client_is_reported(tmp_path: Path) -> None:
    """A tenant of the price file that is not in the tenants file is named on stderr, and the run continues."""
    source, out = write_scene(tmp_path / "in", 3, clients=CAST), tmp_path / "out"
    (tmp_path / "prices.toml").write_text(PRICES.replace('tenant = "shop"', 'tenant = "shpo"'))
    (tmp_path / "tenants.csv").write_text("user,client_id,tenant\norders,,shop\n")
    settings = RollupSettings(
        str(source), out, tenants=tuple(read_tenants(tmp_path / "tenants.csv")), prices=read_prices(tmp_path / "prices.toml")
    )
    out.mkdir()
    write_ledger(out, Ledger(settings=settings.fingerprint, hours=hashes_by_hour_key(source)))
    files = ["--tenants", str(tmp_path / "tenants.csv"), "--prices", str(tmp_path / "prices.toml")]
    reported = CliRunner().invoke(meter, ["rollup", "--in", str(source), "--out", str(out), *files])
    assert (reported.exit_code, reported.stderr.count("\n"), "tenant shpo is in no line" in reported.stderr) == (0, 1, True)


def test_a_closed_day_never_changes(spark: Any, first_hour: FirstHour) -> None:
    """Late files of a closed day become adjustment rows and charges of class Correction, and no byte of the published files changes.

    The late files are read through another file system.
    """
    from pipeline.spark.rollup.rollup import roll_up

    source, out = first_hour.source, first_hour.out
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.cellar.link./metering", source.as_uri())
    assert roll_up(spark, replace(first_hour.settings, close_through="2026-11-21")).hours == 0
    stands = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    first_hour.let_come()
    settings = replace(first_hour.settings, source="viewfs://cellar/metering")  # the same files on another file system
    result = roll_up(spark, settings)
    assert (result.hours, result.late) == (0, 1)
    assert {path: path.read_bytes() for path in stands} == stands
    assert roll_up(spark, settings).late == 0

    first, second = (raw_rows_of_file(path) for path in sorted((source / "usage").rglob("*.parquet")))
    days, added = read_table(out, "usage_day"), read_table(out, "usage_adjustment")
    assert sum(row["requests"] for row in days) == sum(row["requests"] for row in first)
    assert sum(row["requests"] for row in added) == sum(row["requests"] for row in second)
    for table, rows, change in (("focus_day", first, None), ("focus_adjustment", second, "Correction")):
        lines = read_table(out, table)
        assert {(row["ResourceId"].split("/")[1], row["SkuId"]): row["BilledCost"] for row in lines} == expected_amounts(rows)
        assert {row["ChargeClass"] for row in lines} == {change}
        owed = read_table(out, table.replace("focus", "chargeback"))
        assert sum(row["amount"] for row in owed) == sum(row["BilledCost"] for row in lines)
        assert {row["tenant"] for row in owed} == {"shop", "data", "(unassigned)"}


def raw_rows_of_file(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("currency = 5\n", "currency"),
        ('currency = "EUR"\n', "price"),
        ('currency = "EUR"\n[[price]]\nproduced_gib = 0.1\n', "produced_gib"),
        ('currency = "EUR"\n[[price]]\nproduced_gib = "-1"\n', "produced_gib"),
        ('currency = "EUR"\n[[price]]\nbeer = "3"\n', "price\\[1\\]"),
        ('currency = "EUR"\n[[price]]\nfrom = "soon"\nproduced_gib = "1"\n', "from"),
        ("[[price\n", "TOML"),
        ('currency = "E1R"\n[[price]]\nproduced_gib = "1"\n', "currency"),
        ('currency = "EUR"\n[[price]]\nfrom = "2026-13-45"\nproduced_gib = "1"\n', "from"),
        ('currency = "EUR"\n[[price]]\nfrom = "aaaaaaaaaa"\nproduced_gib = "1"\n', "from"),
        ('currency = "EUR"\n[[price]]\ntenant = 5\nproduced_gib = "1"\n', "tenant"),
        ('currency = "EUR"\n[[price]]\ntenant = ""\nproduced_gib = "1"\n', "tenant"),
        ('currency = "EUR"\n[[price]]\nproduced_gib = "1000000"\n', "produced_gib"),
        ('currency = "EUR"\n[[price]]\nproduced_gib = "1"\n[[price]]\nproduced_gib = "2"\n', "price\\[2\\]: .*twice"),
    ],
)
def test_a_wrong_price_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """A price that would be rounded, is negative or duplicate, or names an unknown SKU, day or tenant, is refused with its place."""
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_prices(tmp_path / "prices.toml")


def test_only_what_is_lost_lowers_the_coverage(tmp_path: Path) -> None:
    """A file set that is missing between others lowers the coverage of the next hour; earlier days and files that retention removed do
    not count.
    """
    write_scene(tmp_path, 40, clients=CAST, start_ms=START_MS + 3_580_000, file_set_s=5)
    inputs = find_inputs(tmp_path)
    run = (inputs[0].manifest.proxy_id, inputs[0].manifest.run_id)
    whole = coverage_by_hour(inputs[-2:], {}, {}, lost_between(inputs, {}))
    assert [coverage.percent for coverage in whole.values()] == [100.0]
    removed = lost_between(inputs[1:], {run: inputs[0].manifest.last_seq})
    assert set(removed.values()) == {0}
    gap = coverage_by_hour(inputs, {}, {}, lost_between([*inputs[:1], *inputs[2:]], {}))
    lost = inputs[1].manifest.last_seq - inputs[1].manifest.first_seq + 1
    assert gap[inputs[2].hour].decisions.expected - gap[inputs[2].hour].decisions.present == lost


def test_a_file_set_that_another_one_names_is_missed(tmp_path: Path) -> None:
    """A missing file set is named when the day of the next one is built, also if it held no decisions."""
    source = two_hours(tmp_path / "in")
    settings = RollupSettings(str(source), tmp_path / "out")
    assert plan_local(settings)[1].broken == ()
    last = manifests(source)[-1]
    reported = json.loads(last.read_text())
    last.write_text(json.dumps({**reported, "previous": "gone-0000000000000007"}))
    [line] = plan_local(settings)[1].broken
    assert f"gone-0000000000000007, the file set before {last.stem}, is in no manifest" in line
    done = Ledger(settings=settings.fingerprint, hours=hashes_by_hour_key(source))
    (tmp_path / "out").mkdir()
    write_ledger(tmp_path / "out", done)
    plan = plan_local(settings)[1]
    assert (plan.is_empty, plan.broken) == (True, ())


def hashes_by_hour_key(source: Path) -> dict[str, list[str]]:
    """Return the ledger's hashes after a roll-up of everything."""
    return {hour_key(hour): hashes for hour, hashes in hashes_by_hour(find_inputs(source)).items()}


def test_days_are_not_built_from_what_is_left(tmp_path: Path) -> None:
    """When retention has removed files of a day and late ones arrive, the day is not rebuilt, and the error names it and the remedy."""
    source = two_hours(tmp_path)
    [first, second] = find_inputs(source)
    ledger = Ledger(settings="x", hours={hour_key(first.hour): [first.sha256]})
    assert plan_of([], ledger, "x").is_empty, "what was only removed leaves the tables as they are"
    with pytest.raises(IncompleteError, match="--close-through"):
        plan_of([second], ledger, "x")
    assert plan_of([first, second], ledger, "x").hours == (second.hour,)
    plan = plan_of([second], ledger, "x", closing=second.hour[0])
    assert (plan.hours, plan.late) == ((), (second,)), "the day is closed as it stands, and what came is late"


def test_hours_that_were_not_asked_for_keep_their_settings(tmp_path: Path) -> None:
    """After a change of tenants or prices, hours that --from excludes are rebuilt by the next run without --from."""
    source, out = two_hours(tmp_path / "in"), tmp_path / "out"
    [first, second] = find_inputs(source)
    settings = RollupSettings(str(source), out, tenants=(TenantLine(2, "^orders$", "^.*$", "shop"),))
    hours = {hour_key(item.hour): [item.sha256] for item in (first, second)}
    out.mkdir()
    write_ledger(out, Ledger(hours=hours, built_with=dict.fromkeys(hours, RollupSettings(str(source), out).fingerprint)))
    assert plan_local(replace(settings, begin="2026-11-21 13"))[1].hours == (second.hour,)
    write_ledger(out, Ledger(settings="of an earlier version", hours=hours, built_with={hour_key(second.hour): settings.fingerprint}))
    assert plan_local(settings)[1].hours == (first.hour,)
    write_ledger(out, Ledger(hours=hours, built_with=dict.fromkeys(hours, settings.fingerprint)))
    assert plan_local(settings)[1].is_empty


def test_a_run_of_some_hours_marks_only_those_as_done(spark: Any, first_hour: FirstHour) -> None:
    """After a change of tenants a run for one hour leaves the other outdated, and the next run rebuilds it."""
    from pipeline.spark.rollup.rollup import roll_up

    first_hour.let_come()
    changed = replace(first_hour.settings, levels=("hour",), tenants=(), prices=None)
    assert roll_up(spark, replace(changed, begin="2026-11-21 13", close_through="2026-11-20")).hours == 1
    assert plan_local(changed)[1].hours == (("2026-11-21", "12"),)
    assert read_ledger(first_hour.out).closed_through == "2026-11-20", "closed by the run that built something"
    tenants = {row["hour"]: row["tenant"] for row in read_table(first_hour.out, "usage_hour") if row["client_id"] == "loader"}
    assert tenants == {"12": "data", "13": "(unassigned)"}
    for table in ("usage_day", "decisions_day", "chargeback_day", "focus_day"):
        assert read_table(first_hour.out, table) == [], "a day that was not built again would lack the hour that came"


def test_hour_by_hour_a_day_is_whole(tmp_path: Path) -> None:
    """Runs that build one hour each with --from and --to give a day with all of its hours."""
    source = two_hours(tmp_path / "in")
    [first, second] = find_inputs(source)
    settings = RollupSettings(str(source), tmp_path / "out", begin="2026-11-21 13", end="2026-11-21 13")
    plan = plan_local(settings)[1]
    assert (plan.hours, plan.inputs) == ((second.hour,), (first, second))
    (tmp_path / "out").mkdir()
    write_ledger(tmp_path / "out", Ledger(settings=settings.fingerprint, hours={hour_key(first.hour): [first.sha256]}))
    plan = plan_local(settings)[1]
    assert (plan.hours, plan.days, plan.inputs) == ((second.hour,), ("2026-11-21",), (first, second))


def test_a_forgotten_name_makes_no_file_set_late(tmp_path: Path) -> None:
    """After `forget` an open hour is rebuilt without the name, and on a closed day the file set is neither late nor missing."""
    source = two_hours(tmp_path)
    before = find_inputs(source)
    ledger = Ledger(settings="x", hours={hour_key(item.hour): [item.sha256] for item in before})
    for user in ("orders", "lake"):
        assert forget_user(source, user).file_sets == 2
    after = find_inputs(source)
    assert all(new.manifest.replaces[0] == old.sha256 != new.sha256 for new, old in zip(after, before, strict=True))
    assert plan_of(after, ledger, "x").hours == tuple(item.hour for item in after)
    ledger.closed_through = before[-1].hour[0]
    assert plan_of(after, ledger, "x").is_empty


def test_controller_mutations_add_up(spark: Any, tmp_path: Path) -> None:
    """Decisions of token buckets are in the tables with the manifests' sums, and refused requests use nothing."""
    import random

    from pipeline.spark.rollup.rollup import roll_up
    from tests.support.metering.metering_buckets import START_MS as BEGIN_MS
    from tests.support.metering.metering_buckets import Buckets, write_buckets

    at = datetime.fromtimestamp(BEGIN_MS / 1_000, UTC)
    buckets = Buckets([5.0, 0.3])
    source = write_buckets(tmp_path / "in", buckets, [lambda its: its.play(60, random.Random(1))], hour=(f"{at:%Y-%m-%d}", f"{at:%H}"))
    result = roll_up(spark, RollupSettings(str(source), tmp_path / "out", levels=("day",)))
    assert result.decisions_quarantined == 0
    rows = read_table(tmp_path / "out", "decisions_day")
    assert {row["quota_type"] for row in rows} == {"ControllerMutation"}
    [counts] = [json.loads(path.read_text())["counts"]["ControllerMutation"] for path in manifests(source)]
    assert {name: sum(row[name] for row in rows) for name in counts} == counts
    assert counts["throttled"] > 10
