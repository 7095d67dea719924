"""`sluice meter validate` by both engines: what it prints, and the table of divergences."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from pipeline.validation.divergence import SCHEMA
from pipeline.validation.local import validate
from tests.pipeline.support.closed_loop import closed_loop
from tests.pipeline.validation.test_long_run import BOUND, metered
from tests.support.metering.metering_buckets import Buckets, write_buckets

Typed = Callable[..., Result]
ENGINES = ("local", "spark")


@pytest.fixture
def diverging(tmp_path: Path) -> Path:
    """A metering directory with four buckets, of which each has wrong waits."""

    def longer(tables: dict[str, list[dict[str, Any]]]) -> None:
        for row in tables["events"]:
            row["throttle_ms"] += bool(row["throttle_ms"])

    return write_buckets(tmp_path / "in", Buckets([5.0, 0.3, 2.0, 8.0]), [lambda it: it.play(300, random.Random(1))] * 2, longer)


def test_both_engines_print_the_same(typed: Typed, diverging: Path) -> None:
    """Every format has the same text, with all divergences, with some, and with none of them."""
    for form in ("table", "json", "csv", "html"):
        for number in (0, 2, 50):
            local, spark = (
                typed("validate", "--in", diverging, "--format", form, "--max-violations", number, "--engine", one) for one in ENGINES
            )
            assert local.exit_code == spark.exit_code == 1
            assert local.stdout == spark.stdout, (form, number)
    assert "… and 2 more groups (--max-violations)" in typed("validate", "--in", diverging, "--max-violations", 2).stdout


def test_all_divergences_are_a_table(typed: Typed, lake: str, diverging: Path, tmp_path: Path) -> None:
    """The table has a row for each group, whatever is printed, and the output names it; on Spark it may be at a URL of Hadoop."""
    expected = [one.as_row() for one in validate(diverging).divergences(50)]
    assert len(expected) == 4
    for place, engine in ((tmp_path / "a", "local"), (tmp_path / "b", "spark"), (f"{lake}/c", "spark")):
        done = typed("validate", "--in", diverging, "--violations", place, "--max-violations", 1, "--engine", engine)
        assert done.exit_code == 1, done.output
        assert f"… and 3 more groups (all of them are in {place})" in done.stdout
        rows = pq.read_table(tmp_path / str(place)[-1])
        assert rows.schema.equals(SCHEMA)
        assert sorted(rows.to_pylist(), key=lambda row: row["seq"]) == expected


def test_the_table_of_a_clean_verdict_has_no_rows(typed: Typed, tmp_path: Path) -> None:
    """The table is there without a row, and a directory that exists is refused before anything is read, in one line with exit code 2."""
    clean = metered(tmp_path / "in", list(closed_loop(2, 10_000, BOUND, 20)), 2)
    for engine in ENGINES:
        done = typed("validate", "--in", clean, "--violations", tmp_path / engine, "--engine", engine)
        assert done.exit_code == 0, done.output
        assert pq.read_table(tmp_path / engine).num_rows == 0
        again = typed("validate", "--in", tmp_path / "absent", "--violations", tmp_path / engine, "--engine", engine)
        assert (again.exit_code, again.stderr.count("\n")) == (2, 1)
        assert f"--violations {tmp_path / engine}: exists already" in again.stderr


def test_what_a_quota_file_finds_is_the_same(typed: Typed, tmp_path: Path) -> None:
    """Divergences from a quota file are in the verdict of either engine, with the names of the groups."""
    path = tmp_path / "quotas.toml"
    path.write_text('[[quota]]\nclient-id = "client-0"\nproducer_byte_rate = 100001\n')
    source = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    directory = metered(tmp_path / "in", list(closed_loop(4, 1_000, BOUND, 240, heeds=False, gap_ms=20)), 4, source=source)
    local, spark = (typed("validate", "--in", directory, "--quotas", path, "--engine", engine) for engine in ENGINES)
    assert local.exit_code == spark.exit_code == 1
    assert "BOUND 1, RATE 1" in local.stdout
    assert local.stdout == spark.stdout
