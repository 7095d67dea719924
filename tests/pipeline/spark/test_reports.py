"""Each report is one complete file whatever the client names are, and a client that slows others is found."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.report.charts.distribution import in_buckets
from pipeline.report.charts.heat_map import HeatRow, draw_heat
from pipeline.report.charts.pressure_chart import draw_pressure
from pipeline.report.charts.rate_chart import RateSeries, draw_rates
from pipeline.report.charts.svg import TimeAxis, nice_steps, short
from pipeline.report.page import Page, Section, draw_page
from pipeline.rollup.published.pressure import Pressure
from sluice_cli.meter import meter
from tests.pipeline.validation.test_validation import batches, missed, sensors
from tests.support.html_page import check_page
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.metering_scene import START_MS, Client, write_scene

HOSTILE = '</text><script>alert("1")</script>&\'"'
CAST = [
    Client("loud", HOSTILE, "produce", 400_000.0, 40_000, 20, 2, begin_s=40, end_s=80),
    Client("meek", "victim", "produce", 30_000.0, 4_000, 60),
]


def slow_when_loud(tables: dict[str, list[dict[str, Any]]]) -> None:
    """The victim's requests take four times as long while the other client is active."""
    loud = {row["second_ms"] for row in tables["usage"] if row["client_ref"] == 0}
    for row in tables["usage"]:
        row["handler_ns"] = row["requests"] * (1_000_000 if row["client_ref"] == 0 else 100_000)
        if row["client_ref"] == 1 and row["second_ms"] in loud:
            row["handler_ns"] *= 4


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scene(tmp_path_factory.mktemp("scene"), 120, clients=CAST, mutate=slow_when_loud)


def test_a_neighbour_that_slows_others_is_named(scene: Path) -> None:
    """A client with most of a broker's load, during which another takes four times as long, is reported with both figures."""
    reported = CliRunner().invoke(meter, ["neighbours", "--in", str(scene), "--format", "json"])
    [pair] = json.loads(reported.stdout)["pairs"]
    assert (pair["neighbour"], pair["victim"]) == (f"loud/{HOSTILE}", "meek/victim")
    assert pair["slower"] == pytest.approx(4.0, rel=0.05)
    assert (pair["windows"], pair["others"]) == (4, 8)


def test_who_waits_while_another_is_loud_is_reported_where_one_quota_holds_both(tmp_path: Path) -> None:
    """A client-id that waits while another one of its user uses the shared quota is reported; an unrelated client that waits then is
    not.
    """

    def waits(tables: dict[str, list[dict[str, Any]]]) -> None:
        loud = {row["second_ms"] for row in tables["usage"] if row["client_ref"] == 0}
        for row in tables["usage"]:
            row["throttled_requests"] = row["requests"] if row["client_ref"] > 0 and row["second_ms"] in loud else 0

    cast = [
        Client("team", "backfill", "produce", 1e9, 80_000, 20, 2, begin_s=40, end_s=80),
        Client("team", "web", "produce", 1e9, 1_000, 60),
        Client("other", "stranger", "produce", 1e9, 1_000, 60),
    ]
    source = write_scene(tmp_path, 120, clients=cast, mutate=waits)
    reported = CliRunner().invoke(meter, ["neighbours", "--in", str(source), "--format", "json"])
    assert [(pair["neighbour"], pair["victim"]) for pair in json.loads(reported.stdout)["pairs"]] == [("team/backfill", "team/web")]


def test_a_client_without_a_name_has_no_neighbours(tmp_path: Path) -> None:
    """Without client names `neighbours` prints one line on stderr and ends with exit code 2."""
    source = write_scene(tmp_path, 120, clients=CAST, mutate=slow_when_loud)
    for path in (source / "manifests").rglob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"names": "none"}))
    reported = CliRunner().invoke(meter, ["neighbours", "--in", str(source)])
    assert (reported.exit_code, reported.stdout, reported.stderr.count("\n")) == (2, "", 1)
    assert "names are none" in reported.stderr


def test_without_time_together_nothing_is_reported(tmp_path: Path) -> None:
    """Clients that are never active together are not reported, and missing usage gives one line and exit code 3."""
    alone = [Client("a", "a", "produce", 1e9, 1_000, 50, end_s=20), Client("b", "b", "produce", 1e9, 1_000, 50, begin_s=30)]
    reported = CliRunner().invoke(meter, ["neighbours", "--in", str(write_scene(tmp_path / "in", 60, clients=alone))])
    assert "no client was slower" in reported.stdout
    without = write_scene(tmp_path / "none", 5, clients=alone, mutate=lambda tables: tables["usage"].clear())
    reported = CliRunner().invoke(meter, ["neighbours", "--in", str(without)])
    assert (reported.exit_code, reported.stderr.count("\n")) == (3, 1)


@pytest.mark.parametrize("command", ["neighbours", "whatif", "recommend"])
def test_every_page_is_complete_and_loads_nothing(scene: Path, tmp_path: Path, command: str) -> None:
    """The page of --out (or --report) equals that of --format html; its tags balance, and it has no script, link or address."""
    quotas = tmp_path / "quotas.toml"
    quotas.write_text('[[quota]]\nclient-id = "victim"\nproducer_byte_rate = 20000\n')
    options = {"whatif": ["--quotas", str(quotas), "--mode", "closed"]}.get(command, [])
    out = ["--report" if command == "recommend" else "--out", str(tmp_path / "out")]
    reported = CliRunner().invoke(meter, [command, "--in", str(scene), *options, *out, "--format", "html"])
    assert reported.exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert page == reported.stdout
    check_page(page)
    assert "&lt;script&gt;" in page
    assert json.loads((tmp_path / "out" / "summary.json").read_text())


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_verdict_has_a_page(tmp_path: Path, is_wrong: bool) -> None:
    """The page of `validate` shows an exact verdict, or the first divergence of each group with its samples."""
    source = write_directory(tmp_path / "in", batches(), sensors(), mutate=missed if is_wrong else lambda _rows: None)
    reported = CliRunner().invoke(meter, ["validate", "--in", str(source), "--out", str(tmp_path / "out"), "--format", "html"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert reported.stdout == page
    check_page(page, has_drawing=False)
    assert ("MISSED" in page, "the samples that prove it" in page, ">exact<" in page) == (is_wrong, is_wrong, not is_wrong)


@pytest.mark.parametrize("seconds", [1, 90, 4_000, 200_000])
@pytest.mark.parametrize("bound", [None, 0.0, 500.0])
def test_charts_hold_at_every_length(seconds: int, bound: float | None) -> None:
    """A chart of any duration, with or without a bound, is drawn within its frame."""
    step = max(1, seconds // 500)
    times = [START_MS + 1_000 * at for at in range(0, seconds, step)]
    rate = [0.0 if at % 7 else 1_000.0 for at in range(len(times))]
    series = RateSeries(
        HOSTILE,
        "Produce",
        "about",
        times,
        rate,
        [400.0] * len(times),
        [bound] * len(times),
        [(START_MS, START_MS + 5_000)],
        [(START_MS, START_MS + 900)],
    )
    heat = HeatRow(HOSTILE, [None, 0.0, 99.0, 250.0], [0, 0, 500, 99_000], [0, 700, 0, 99_000])
    parts = [
        draw_rates(series, START_MS, START_MS + 1_000 * seconds),
        draw_heat([heat], START_MS, 1_000 * seconds, 4),
        draw_pressure(
            [(HOSTILE, "Produce", Pressure(0.0, 0.0, bound, [], 0, 900)), ("b", "Request", Pressure(1.0, 9.0, bound, [5, 9], 2))]
        ),
    ]
    check_page(draw_page(Page("t", "a", [], [Section("s", "", parts)])))


def test_ticks_are_few_and_at_full_times() -> None:
    """An axis of any length has a few labels at full times."""
    for seconds in (1, 10, 95, 3_000, 86_400, 30 * 86_400):
        ticks = TimeAxis(START_MS, START_MS + 1_000 * seconds, 0, 100).ticks()
        assert 1 <= len(ticks) <= 10
    assert nice_steps(950.0) == [0, 500]
    assert nice_steps(0.0) == [0.0]


def test_a_long_name_keeps_both_ends() -> None:
    """A shortened name keeps its beginning and its end."""
    assert short("shop: client-id checkout @ east-1", 33) == "shop: client-id checkout @ east-1"
    assert (name := short("shop: client-id checkout @ sluice-east-1", 33)).endswith("out @ sluice-east-1"[-16:])
    assert (len(name), name[:16]) == (33, "shop: client-id ")


def test_buckets_are_powers_of_two() -> None:
    """A wait belongs to the bucket of the smallest power of two that is not below it."""
    assert in_buckets({1: 1, 2: 1, 3: 5, 4: 1, 1_025: 2}) == {1: 1, 2: 1, 4: 6, 2_048: 2}
