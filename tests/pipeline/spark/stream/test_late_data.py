"""Late file sets: open hours are rebuilt, closed days get adjustments once, and the coverage changes with them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadInputError
from pipeline.rollup.coverage import lost_between
from pipeline.rollup.inputs import find_inputs, hashes_by_hour
from pipeline.rollup.late import batch_of
from pipeline.rollup.ledger import Ledger, hour_key, read_ledger, write_ledger
from pipeline.rollup.plan import lost_by_hour, plan_of
from pipeline.rollup.prices import read_prices
from pipeline.rollup.published.tables import read_table
from pipeline.rollup.settings import RollupSettings, plan_local
from tests.pipeline.support.first_hour import CAST, PRICES, manifests
from tests.support.metering.metering_scene import START_MS, write_scene

DAY = "2026-11-21"


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """Four file sets: two of one hour, two of the next."""
    return write_scene(tmp_path / "in", 40, clients=CAST, start_ms=START_MS + 3_580_000, file_set_s=10)


def hold_back(source: Path, *numbers: int) -> dict[int, tuple[Path, bytes]]:
    """Remove manifests; return them by number."""
    paths = manifests(source)
    held = {number: (paths[number], paths[number].read_bytes()) for number in numbers}
    for path, _ in held.values():
        path.unlink()
    return held


def let_come(held: tuple[Path, bytes]) -> None:
    held[0].write_bytes(held[1])


def requests_of(source: Path, number: int) -> int:
    """Return the sum of requests in the raw rows of a file set."""
    path = sorted((source / "usage").rglob("*.parquet"))[number]
    return sum(pq.read_table(path, columns=["requests"], partitioning=None).column(0).to_pylist())


def test_what_was_missing_before_an_hour_makes_it_whole(scene: Path) -> None:
    """A late file set reopens its own hour and the next one, whose rows recorded that something was missing before them."""
    held = hold_back(scene, 1)
    few = find_inputs(scene)
    lost = lost_between(few, {})
    ledger = Ledger(settings="x", hours=dict(by_key(few)), lost=lost_by_hour(few, lost))
    assert list(ledger.lost) == [f"{DAY} 13"]
    assert plan_of(few, ledger, "x", lost=lost).is_empty
    let_come(held[1])
    whole = find_inputs(scene)
    assert plan_of(whole, ledger, "x", lost=lost_between(whole, {})).hours == ((DAY, "12"), (DAY, "13"))
    by_hand = plan_of(few[1:], ledger, "x", lost=lost_between(few[1:], {}))
    assert by_hand.is_empty, "what is deleted by hand afterwards leaves the tables as they are"


def by_key(inputs: Any) -> Any:
    return ((hour_key(hour), hashes) for hour, hashes in hashes_by_hour(inputs).items())


def test_one_file_set_in_two_places_is_late_once(scene: Path) -> None:
    """A manifest that is copied into the directory of another hour still counts once, in the hour of its files."""
    inputs = find_inputs(scene)
    ledger = Ledger(settings="x", hours=dict(by_key(inputs)), closed_through=DAY)
    copy = manifests(scene)[1].parents[1] / "hour=11" / manifests(scene)[1].name
    copy.parent.mkdir()
    shutil.copy(manifests(scene)[1], copy)
    assert find_inputs(scene) == inputs
    assert plan_of(find_inputs(scene), ledger, "x").is_empty


def test_late_data_of_a_closed_day_count_once_and_make_it_whole(spark: Any, scene: Path, tmp_path: Path) -> None:
    """Adjustments of a killed run do not count, later ones count once and raise the day's coverage, and charges are adjusted only with
    prices.
    """
    from pipeline.spark.rollup.rollup import roll_up

    held, out = hold_back(scene, 1, 3), tmp_path / "out"
    (tmp_path / "prices.toml").write_text(PRICES)
    settings = RollupSettings(str(scene), out, ("day",), prices=read_prices(tmp_path / "prices.toml"))
    closing = replace(settings, close_through=DAY)
    assert roll_up(spark, closing).coverage[DAY] < 80.0
    before = read_ledger(out)
    let_come(held[1])
    with pytest.raises(BadInputError, match="--prices"):
        plan_local(replace(settings, prices=None))
    assert roll_up(spark, settings).coverage == {DAY: 100.0}
    [only] = plan_of(find_inputs(scene), before, settings.fingerprint).late
    write_ledger(out, replace_pending(before, batch_of([only])))  # as after a kill before the end

    let_come(held[3])
    assert (result := roll_up(spark, settings)).late == 2
    assert result.coverage == {DAY: 100.0}
    added = read_table(out, "usage_adjustment")
    assert sum(row["requests"] for row in added) == requests_of(scene, 1) + requests_of(scene, 3)
    for table in ("usage_adjustment", "chargeback_adjustment"):
        assert {row["coverage_percent"] for row in read_table(out, table)} == {100.0}
    assert sum(row["units"] for row in read_table(out, "chargeback_adjustment") if row["sku"] == "million_requests") == sum(
        row["requests"] for row in added
    )
    ledger = read_ledger(out)
    assert (ledger.pending, ledger.lost[f"{DAY} 13"]) == (None, 0)
    assert (
        ledger.accounts[DAY][2]
        == ledger.accounts[DAY][3]
        == sum(json.loads(path.read_text())["last_seq"] for path in manifests(scene)[-1:]) + 1
    )


def replace_pending(ledger: Ledger, batch: str) -> Ledger:
    ledger.pending = batch
    return ledger
