"""The tasks of deploy/airflow/sluice_rollup.py roll up a metering directory; Airflow itself is replaced by what the file imports of it."""

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipeline.rollup.ledger import read_ledger
from tests.pipeline.support.first_hour import manifests, two_hours
from tests.support.places import ROOT


class FailedError(Exception):
    """Stands for AirflowFailException."""


class Dags:
    """Collects DAGs with their tasks, as Airflow does."""

    def __init__(self) -> None:
        self.schedules: dict[str, str] = {}
        self.tasks: dict[str, Callable[[], None]] = {}

    def dag(self, *, schedule: str, **_: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def named(function: Callable[[], None]) -> Callable[[], None]:
            self.schedules[function.__name__] = schedule
            return function

        return named

    def task(self, function: Callable[[], None]) -> Callable[[], None]:
        return lambda: self.tasks.update({function.__name__: function})


@pytest.fixture
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dags:
    """The DAGs of the file, for a directory of two hours."""
    found = Dags()
    sdk, errors = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    vars(sdk).update(dag=found.dag, task=found.task, get_current_context=dict)
    vars(errors).update(AirflowFailException=FailedError)
    for module in (ModuleType("airflow"), sdk, errors):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLUICE_METERING", str(two_hours(tmp_path / "in")))
    monkeypatch.setenv("SLUICE_TABLES", str(tmp_path / "out"))
    runpy.run_path(str(ROOT / "deploy/airflow/sluice_rollup.py"))
    return found


def test_the_tasks_roll_up_and_close(dags: Dags, tmp_path: Path) -> None:
    """One task builds the tables, the other one closes the days up to the day before yesterday."""
    assert dags.schedules == {"sluice_rollup": "5 * * * *", "sluice_rollup_close": "30 3 * * *"}
    dags.tasks["hours"]()
    assert read_ledger(tmp_path / "out").closed_through is None
    dags.tasks["close"]()
    assert read_ledger(tmp_path / "out").closed_through is not None


def test_bad_input_is_not_tried_again_and_missing_data_are(dags: Dags, tmp_path: Path) -> None:
    """A task fails for good when the directory does not exist, and is tried again when a file set is missing."""
    first, _ = manifests(tmp_path / "in")
    content = first.read_bytes()
    first.unlink()
    with pytest.raises(RuntimeError, match="exit code 3"):
        dags.tasks["hours"]()
    first.write_bytes(content)
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    with pytest.raises(FailedError, match=f"{tmp_path}/in"):
        dags.tasks["hours"]()
