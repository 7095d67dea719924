"""`sluice.pipeline`, and the notebook that shows it, with a server of Spark Connect."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.quotas.file import read_quota_file
from pipeline.rollup.settings import RollupSettings
from pipeline.tasks import run_local
from pipeline.validation.local import validate as validate_local
from pipeline.whatif.comparison import changes_of
from pipeline.whatif.work import JOB, outcomes_of, plan_work
from tests.pipeline.support import remote_program
from tests.pipeline.support.first_hour import two_hours
from tests.pipeline.validation.test_validation import batches, change_unread, missed, sensors
from tests.support.metering.metering_directory import write_directory
from tests.support.places import ROOT
from tests.support.tools import in_ci, missing_to_run

NOTEBOOK = ROOT / "examples/notebooks/metering.ipynb"
PROGRAM_S = 240


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A metering directory; beside it two that have divergences, one of them with a damaged file."""
    folder = tmp_path_factory.mktemp("metering")
    for name in ("violated", "damaged"):
        write_directory(folder / name, batches(file_sets=2), sensors(), mutate=missed)
    change_unread(folder / "damaged")
    return two_hours(folder / "run")


@pytest.fixture(scope="module")
def remote(source: Path) -> dict[str, Any]:
    """What the program prints that knows Spark only by Spark Connect."""
    missing = missing_to_run()
    if missing and not in_ci():
        pytest.skip(f"Spark cannot run here: missing {', '.join(missing)}")
    pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", remote_program.__name__, str(source), str(NOTEBOOK)],
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "METERING": str(source)},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_notebook_shows_what_the_local_engine_finds(remote: dict[str, Any], source: Path, tmp_path: Path) -> None:
    """All cells run: the verdict, the usage of each client by day and the throttles are those of the local engine."""
    from pipeline.duckdb.rollup import roll_up

    _, verdict, divergences, usage, stretches, _, changes = remote["shown"]
    assert verdict == {"holds": True, "complete": True, "decisions": validate_local(source).decisions}
    assert divergences == []
    roll_up(RollupSettings(str(source), tmp_path, ("day",)))
    rows = pq.read_table(tmp_path / "usage_day").to_pylist()
    key = ("principal", "client_id", "api_class")
    expected = [{**{name: row[name] for name in key}, "bytes": row["produce_bytes"] + row["fetch_bytes"]} for row in rows]
    assert sorted(expected, key=str) == sorted(({name: row[name] for name in (*key, "bytes")} for row in usage), key=str)
    waits = pq.read_table(tmp_path / "throttle_stretches").column("throttle_ms").to_pylist()
    assert sum(row["sum(throttle_ms)"] for row in stretches) == sum(waits) > 0
    assert [row["group"] for row in changes] == sorted(row["group"] for row in changes) != []


def test_functions_give_what_the_commands_give_by_connect(remote: dict[str, Any], source: Path, tmp_path: Path) -> None:
    """The verdict, of a path and of a URL of Hadoop, and the what-if equal those of the local engine."""
    verdict = json.loads(json.dumps(validate_local(source).as_dict(50)))
    assert remote["verdict"] == verdict
    assert remote["verdict_of_url"] == verdict
    quotas = tmp_path / "quotas.toml"
    quotas.write_text(remote["quotas"])
    [outcomes] = outcomes_of(run_local(JOB, plan_work(source, [read_quota_file(quotas)], "open")), 1)
    expected = [[getattr(change, name) for name in change.__struct_fields__][1:] for change in changes_of("", outcomes, "open")]
    assert [row[1:] for row in remote["changes"]] == json.loads(json.dumps(expected))


def test_divergences_at_a_url_are_not_those_of_damage_by_connect(remote: dict[str, Any], source: Path) -> None:
    """They are those of the local engine. If a file of their run is damaged, it is named instead."""
    expected = json.loads(json.dumps(validate_local(source.parent / "violated").as_dict(50)))
    assert remote["verdict_of_violated"] == expected
    assert expected["violations"]
    assert remote["error_of_damaged"].startswith("IncompleteError: viewfs://house/metering/damaged/dim_bound/")
    assert ": its SHA-256 is not the one in manifest " in remote["error_of_damaged"]
    assert "the file is damaged, so its divergences are not evidence" in remote["error_of_damaged"]


def test_a_session_of_connect_stays_as_it_was(remote: dict[str, Any]) -> None:
    """Its settings are the same afterwards, it runs, and an error of a task is one line with file and remedy."""
    assert remote["is_remote"]
    assert remote["settings_before"] == remote["settings_after"]
    assert remote["rows_afterwards"] == 3
    assert remote["error"].startswith("BadInputError: ")
    assert remote["error"].endswith("restore it")
    assert "\n" not in remote["error"]
