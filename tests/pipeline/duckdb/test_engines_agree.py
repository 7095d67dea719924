"""`rollup --engine local` publishes the same tables as Spark: partitions, columns, rows and their order."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.duckdb.rollup import roll_up as roll_up_here
from pipeline.rollup.content.sums import USAGE_SUMS
from pipeline.rollup.inputs import Input
from pipeline.rollup.ledger import read_ledger
from pipeline.rollup.prices import read_prices
from pipeline.rollup.settings import RollupSettings
from pipeline.rollup.tenants import read_tenants
from pipeline.spark.rollup import shares
from tests.pipeline.support.equal_tables import assert_equal_tables
from tests.pipeline.support.first_hour import CAST, PRICES, TENANTS, manifests
from tests.support.metering.metering_directory import write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID
from tests.support.metering.metering_scene import START_MS, Client, write_scene
from tests.support.metering.metering_topics import write_topics
from tests.support.metering.metering_workers import Step, play

DAY = "2026-11-21"
Tables = dict[str, list[dict[str, Any]]]


def spoil(tables: Tables) -> None:
    """Observe the first client's quota, remove the lists of one sample, and make rows that cannot count."""
    for row in tables["samples"]:
        row["applied_ms"] = [0 if row["group_ref"] == 0 else -1 if at % 2 else ms for at, ms in enumerate(row["applied_ms"])]
        row["applied_ms_sum"] = sum(max(ms, 0) for ms in row["applied_ms"])
    for row in tables["usage"]:
        row |= {"waited_requests": 0, "waited_ms": 0} if row["client_ref"] == 0 else {"waited_requests": None, "waited_ms": None}
    unlisted = next(row for row in tables["samples"] if row["throttled_n"] > 0 and row["applied_ms_sum"] > 0)
    unlisted |= dict.fromkeys(("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms"))
    tables["usage"][0]["second_ms"] += 86_400_000
    tables["usage"][1]["client_ref"] = 77
    del tables["dim_group"][2]


def spoiled(directory: Path) -> Path:
    """Two hours of four clients, the user of one with signs that Kafka escapes."""
    cast = [*CAST, Client("m%C3%BCller+x", "ca'fé\n", "fetch", 30_000.0, 9_000, 60, 3)]
    return write_scene(directory, 40, clients=cast, start_ms=START_MS + 3_580_000, mutate=spoil)


def topics(directory: Path) -> Path:
    """Controller mutations, which are rows of `events`."""
    return write_topics(directory, minutes=12)


def of_workers(directory: Path) -> Path:
    """Two workers that use one group alternately, so that each has usage of the other."""
    play(directory, [Step(at % 2, "record", 0, 700 + 13 * at, 40) for at in range(100)])
    return directory


def usage_only(directory: Path) -> Path:
    """Clients that come, wait, leave and open connections by chance, over two hours: input of `escapes`."""
    dice = random.Random(5)
    users = ("eve", "mallory", "ANONYMOUS", "ANONYMOUS")
    clients = [(users[at % 4], f"{dice.choice(('app', 'étl', 'job'))}-{at // 4}") for at in range(60)]
    named = {"run_id": RUN_ID, "principal_type": "User", "name_form": "plain"}
    for number, hour in enumerate(("12", "13")):
        rows = []
        for ref in range(len(clients)):
            begin, length = dice.randrange(0, 3_000), dice.randrange(5, 300)
            waits = dice.random() < 0.6
            for second in sorted({begin + dice.randrange(length) for _ in range(length)}):
                throttled = dice.randrange(3) if waits else 0
                opened = dice.randrange(4) if throttled else int(dice.random() < 0.05)
                counts = {"requests": 1 + dice.randrange(9), "throttled_requests": throttled, "throttle_ms": 100 * throttled}
                sizes = {
                    "request_bytes": 90,
                    "response_bytes": 60,
                    "produce_bytes": dice.randrange(9_000),
                    "fetch_bytes": 0,
                    "handler_ns": 77,
                }
                waited = {"waited_requests": throttled, "waited_ms": 100 * throttled, "connections_opened": opened, "connections_open": 1}
                place = {
                    "run_id": RUN_ID,
                    "proxy_id": PROXY_ID,
                    "client_ref": ref,
                    "node": "1",
                    "node_id": 1,
                    "listener": "edge",
                    "api_class": dice.choice(("produce", "group")),
                }
                rows.append({**place, **counts, **sizes, **waited, "second_ms": START_MS + number * 3_600_000 + 1_000 * second})
        dims = [{**named, "client_ref": ref, "principal": user, "client_id": its} for ref, (user, its) in enumerate(clients)]
        begins = START_MS + number * 3_600_000
        totals = {name: sum(row[name] for row in rows) for name in USAGE_SUMS}
        tables = {"usage": rows, "dim_client": dims}
        write_file_set(directory, tables, number, number, begins, begins, {}, hour=(DAY, hour), usage=totals, final=number == 1)
    return directory


@pytest.fixture(autouse=True)
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide even a small input among several tasks of Spark: each reads one file set, and three add up a day."""
    monkeypatch.setattr(shares, "PART_ROWS_MAX", 1)
    monkeypatch.setattr("pipeline.spark.rollup.seconds.shares_of", shares_of_three)


def shares_of_three(inputs: Iterable[Input], parallelism: int) -> shares.Shares:
    days = sorted({item.hour[0] for item in inputs})
    return shares.Shares({date: 3 * number for number, date in enumerate(days)}, dict.fromkeys(days, 3))


@pytest.mark.parametrize("scene", [spoiled, topics, of_workers, usage_only])
def test_both_engines_publish_the_same_tables(spark: Any, tmp_path: Path, scene: Callable[[Path], Path]) -> None:
    """All levels, tenants and prices: the tables and the ledger are equal, and integers are exact."""
    from pipeline.spark.rollup.rollup import roll_up

    source = scene(tmp_path / "in's")
    (tmp_path / "tenants.csv").write_text(TENANTS)
    (tmp_path / "prices.toml").write_text(PRICES)
    tenants, prices = tuple(read_tenants(tmp_path / "tenants.csv")), read_prices(tmp_path / "prices.toml")
    settings = RollupSettings(str(source), tmp_path / "spark", ("minute", "hour", "day"), tenants, prices=prices)
    its = roll_up(spark, settings)
    ours = roll_up_here(replace(settings, out=tmp_path / "local"))
    rows = assert_equal_tables(tmp_path / "spark", tmp_path / "local")
    assert ours == its
    assert {table: count for table, count in ours.tables.items() if count} == rows
    assert read_ledger(tmp_path / "local") == read_ledger(tmp_path / "spark")


def test_both_engines_publish_the_same_adjustments(spark: Any, tmp_path: Path) -> None:
    """Late data of a closed day become equal rows, also where the other engine made the tables of the day."""
    from pipeline.spark.rollup.rollup import roll_up

    source = write_scene(tmp_path / "in", 40, clients=CAST, start_ms=START_MS + 3_580_000, file_set_s=10)
    late = manifests(source)[1]
    content = late.read_bytes()
    late.unlink()
    (tmp_path / "prices.toml").write_text(PRICES)
    settings = RollupSettings(str(source), tmp_path / "spark", ("day",), prices=read_prices(tmp_path / "prices.toml"), close_through=DAY)
    roll_up(spark, settings)
    here = replace(settings, out=tmp_path / "local")
    roll_up_here(here)
    late.write_bytes(content)
    assert roll_up(spark, settings) == roll_up_here(here)
    rows = assert_equal_tables(tmp_path / "spark", tmp_path / "local")
    assert rows["usage_adjustment"] == 3
    assert rows["focus_adjustment"] > 0
