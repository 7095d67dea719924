"""`sluice.pipeline`: the pipeline on the session of another program."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadInputError, IncompleteError
from pipeline.tasks import run_local
from pipeline.validation.local import validate as validate_local
from tests.pipeline.support.first_hour import FirstHour, two_hours
from tests.pipeline.validation.test_validation import batches, missed, sensors
from tests.support.metering.metering_directory import write_directory

ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def own(spark: Any) -> Iterator[Any]:
    """A session of another program: far from UTC, with settings of its own that must stay."""
    program = spark.newSession()
    for key, value in (*spark.conf.getAll.items(), (ZONE, "Asia/Kolkata"), ("spark.sql.execution.arrow.maxRecordsPerBatch", "5000")):
        if spark.conf.isModifiable(key):
            program.conf.set(key, value)
    before = program.conf.getAll
    yield program
    assert program.conf.getAll == before


def rows_of(table: Any) -> list[str]:
    """Return the rows of an Arrow table in one order, with moments in UTC."""
    names = sorted(table.column_names)
    return sorted(json.dumps([row[name] for name in names], default=_text) for row in table.to_pylist())


def _text(value: Any) -> str:
    return str(int(value.timestamp() * 1000)) if hasattr(value, "timestamp") else str(value)


def test_frames_are_the_tables_of_the_command(own: Any, first_hour: FirstHour) -> None:
    """In any time zone each frame has the rows that the command published, and the session keeps its settings."""
    from sluice.pipeline import rollup

    folder = first_hour.folder
    with rollup(own, first_hour.source, tenants=folder / "tenants.csv", prices=folder / "prices.toml") as made:
        assert made.coverage == first_hour.result.coverage
        assert {name: frame.count() for name, frame in made.tables.items()} == first_hour.result.tables
        for name in ("usage_hour", "usage_day", "decisions_day", "throttle_stretches", "focus_day"):
            found, there = made.tables[name].toArrow(), pq.read_table(first_hour.out / name)
            columns = [column for column in found.column_names if column not in {"date", "hour"}]
            assert rows_of(found.select(columns)) == rows_of(there.select(columns)), name


def test_the_first_and_the_last_hour(own: Any, tmp_path: Path) -> None:
    """Hours can be chosen; without a file set in them the roll-up ends, and so it does with an unknown level."""
    from sluice.pipeline import rollup

    source = two_hours(tmp_path / "in")
    with rollup(own, source, levels=("hour",), begin="2026-11-21 13") as made:
        assert {row["hour"] for row in made.tables["usage_hour"].select("hour").collect()} == {"13"}
    with pytest.raises(IncompleteError, match="no file set"):
        rollup(own, source, begin="2026-11-22 00")
    with pytest.raises(BadInputError, match='"week" is not one of'):
        rollup(own, source, levels=("week",))


@pytest.mark.parametrize("few", [10_000, 0], ids=["of the driver", "kept by Spark"])
def test_a_verdict_with_its_divergences_as_a_frame(own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """The verdict is that of the local engine, and the divergences are rows, which Spark keeps if they are many."""
    from sluice.pipeline import validate

    monkeypatch.setattr(importlib.import_module("sluice.pipeline.validate"), "_FEW", few)
    directory = write_directory(tmp_path / "run", batches(file_sets=2), sensors(), mutate=missed)
    here = validate_local(directory)
    verdict = validate(own, directory, every_byte=True)
    assert (verdict.holds, verdict.is_complete) == (False, True)
    assert json.loads(json.dumps(verdict.verdict)) == json.loads(json.dumps(here.as_dict(50)))
    rows = verdict.divergences.orderBy("proxy_id", "run_id", "seq", "group_ref").collect()
    assert [row.asDict() for row in rows] == [one.as_row() for one in here.divergences(here.violations)]
    assert verdict.divergences.storageLevel.useMemory == (few == 0)
    verdict.divergences.unpersist()


def test_a_what_if_as_a_frame(own: Any, tmp_path: Path) -> None:
    """Each quota file and group is a row, equal to that of the local engine."""
    from pipeline.quotas.file import read_quota_file
    from pipeline.whatif.comparison import changes_of
    from pipeline.whatif.work import JOB, outcomes_of, plan_work
    from sluice.pipeline import whatif

    source, quotas = two_hours(tmp_path / "in"), tmp_path / "quotas.toml"
    quotas.write_text('[[quota]]\nclient-id = "checkout"\nproducer_byte_rate = 10_000\n')
    work = plan_work(source, [read_quota_file(quotas)], "open")
    [outcomes] = outcomes_of(run_local(JOB, work), 1)
    expected = changes_of(str(quotas), outcomes, "open")
    found = whatif(own, source, [quotas]).collect()
    assert found
    assert [tuple(row) for row in found] == [tuple(getattr(change, name) for name in change.__struct_fields__) for change in expected]
    with pytest.raises(BadInputError, match="nosuch://host/metering: Spark has no file system for nosuch:"):
        whatif(own, "nosuch://host/metering", [quotas])
