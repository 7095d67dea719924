"""Commands of `sluice meter` on Spark, with metering files, quota files, tenants and prices at URLs that only Hadoop knows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.pipeline.support.closed_loop import closed_loop
from tests.pipeline.support.counted_rows import of_directory
from tests.pipeline.support.first_hour import CAST, PRICES, TENANTS
from tests.pipeline.validation.test_against_broker import directory as compared_directory
from tests.pipeline.validation.test_long_run import BOUND, metered, quota_file
from tests.support.metering.metering_scene import write_scene

QUOTAS = '[[quota]]\nuser = "orders"\nproducer_byte_rate = 20000\n'
Typed = Callable[..., Result]
ON_SPARK = ("--engine", "spark")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A metering directory of six file sets, with a quota file, tenants and prices beside it."""
    write_scene(tmp_path / "in", 60, clients=CAST, file_set_s=10)
    for name, text in (("quotas.toml", QUOTAS), ("tenants.csv", TENANTS), ("prices.toml", PRICES)):
        (tmp_path / name).write_text(text)
    return tmp_path


COMMANDS: Sequence[tuple[str, ...]] = [
    ("whatif", "--in", "PLACE/in", "--quotas", "PLACE/quotas.toml", "--format", "json"),
    ("whatif", "--in", "PLACE/in", "--quotas", "PLACE/quotas.toml", "--mode", "closed"),
    ("recommend", "--in", "PLACE/in", "--format", "json"),
    ("neighbours", "--in", "PLACE/in", "--format", "json"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=[f"{words[0]} {words[-1]}" for words in COMMANDS])
def test_a_url_gives_what_a_path_gives(typed: Typed, lake: str, folder: Path, words: Sequence[str]) -> None:
    """Spark's tasks get the files from Spark's reader; the command prints what the local engine prints for the path."""
    local = typed(*(word.replace("PLACE", str(folder)) for word in words))
    remote = typed(*(word.replace("PLACE", lake) for word in words), "--engine", "spark")
    assert remote.exit_code == local.exit_code == 0, remote.output
    assert remote.stdout.replace(lake, str(folder)) == local.stdout


def test_a_roll_up_reads_tenants_and_prices_at_urls(typed: Typed, lake: str, folder: Path) -> None:
    """The tables are those of the local engine with the same files on the disk; without `--engine` a URL of Hadoop chooses Spark."""
    for place, out, engine in ((str(folder), "a", ("--engine", "local")), (lake, "b", ())):
        files = ("--tenants", f"{place}/tenants.csv", "--prices", f"{place}/prices.toml")
        done = typed("rollup", "--in", folder / "in", "--out", folder / out, *files, *engine)
        assert done.exit_code == 0, done.output
    assert of_directory(folder / "a") == of_directory(folder / "b")
    assert of_directory(folder / "b")["chargeback_day"]


def test_a_validation_compares_with_brokers_at_a_url(typed: Typed, lake: str, tmp_path: Path) -> None:
    """The comparison is that of the directory."""
    compared_directory(tmp_path / "run", [("answer", 0, None, 1_000, 1_000), ("answer", 0, None, 2_000, 500)])
    found = []
    for arguments in ((tmp_path / "run",), (f"{lake}/run", "--engine", "spark")):
        done = typed("validate", "--against-broker", "--format", "json", "--in", *arguments)
        found.append((done.exit_code, json.loads(done.stdout)["against_broker"]))
    assert found[0] == found[1]
    assert found[0][1]


def test_a_validation_reads_a_quota_file_at_a_url(typed: Typed, lake: str, folder: Path) -> None:
    """It is the one whose digest the recorded bounds are compared with: this one is not."""
    done = typed("validate", "--in", f"{lake}/in", "--quotas", f"{lake}/quotas.toml", "--engine", "spark")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert f"--quotas {lake}/quotas.toml: no recorded bound comes from this file" in done.stderr


def test_a_validation_by_a_quota_file_is_that_of_a_path(typed: Typed, lake: str, tmp_path: Path) -> None:
    """Tasks compare groups and bounds, and find at a path and at a URL what the local engine finds."""
    path, source = quota_file(tmp_path / "quotas", '[[quota]]\nuser = "u"\nclient-id = "<default>"\nproducer_byte_rate = 100000\n')
    place = metered(tmp_path / "run", list(closed_loop(2, 10_000, BOUND, 20)), 2, source=source)
    found = []
    for at, engine in ((str(tmp_path), ()), (str(tmp_path), ON_SPARK), (lake, ON_SPARK)):
        run, file = (str(one).replace(str(tmp_path), at) for one in (place, path))
        done = typed("validate", "--in", run, "--quotas", file, "--format", "json", *engine)
        found.append((done.exit_code, json.loads(done.stdout)))
    assert found[0] == found[1] == found[2]
    assert (found[0][0], found[0][1]["kinds"]) == (1, {"GROUP": 1})


@pytest.mark.parametrize("command", ["whatif", "recommend", "neighbours", "rollup", "validate"])
def test_the_local_engine_names_the_remedy(typed: Typed, tmp_path: Path, command: str) -> None:
    """A URL that only Hadoop knows is one line and exit code 2 without Spark."""
    options = {
        "whatif": ("--quotas", "hdfs://host/quotas.toml"),
        "rollup": ("--engine", "local", "--out", tmp_path / "out", "--prices", "hdfs://host/prices.toml"),
        "validate": ("--quotas", "hdfs://host/quotas.toml"),
    }
    place = tmp_path if command in options else "hdfs://host/metering"
    done = typed(command, "--in", place, *options.get(command, ()))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert "only Hadoop can know it; add --engine spark" in done.stderr


def test_the_function_takes_urls(spark: Any, lake: str, folder: Path) -> None:
    """`sluice.pipeline.whatif` returns for URLs the rows that it returns for paths."""
    from sluice.pipeline import whatif

    there, here = (whatif(spark, f"{place}/in", [f"{place}/quotas.toml"]).drop("scenario").collect() for place in (lake, folder))
    assert there == here
    assert there
