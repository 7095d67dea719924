"""Memory of who judges many files."""

import subprocess
import sys

import pytest

from pipeline.commands import common
from pipeline.commands.common import LOCAL, SPARK, common_options
from pipeline.memory import ARROW_KEEPS

SAID = "from os import environ; print(environ.get('MIMALLOC_PURGE_DELAY'))"


def told(program: str) -> str:
    """What a Python without that variable prints."""
    environment = {"PATH": ""}
    return subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


@pytest.mark.parametrize(("before", "said"), [("", ARROW_KEEPS[1]), ("import pyarrow; ", "None")])
def test_arrow_is_told_before_it_is_loaded(before: str, said: str) -> None:
    """Later it does not look, and what is in the environment would be for children alone."""
    assert told(f"{before}from pipeline.memory import keep_memory; keep_memory(); {SAID}") == said


@pytest.mark.parametrize("module", ["pipeline.commands.validate", "pipeline.commands.common", "pipeline.command"])
def test_a_command_loads_no_arrow_before_it_knows_where_to_work(module: str) -> None:
    """Arrow's memory would be set by then."""
    assert told(f"import sys, {module}; print('pyarrow' in sys.modules)") == "False"


@pytest.mark.parametrize(("engine", "times"), [(LOCAL, 1), (SPARK, 0)])
def test_memory_is_kept_where_the_work_is_done(monkeypatch: pytest.MonkeyPatch, engine: str, times: int) -> None:
    """On Spark the driver only collects verdicts."""
    kept: list[None] = []
    monkeypatch.setattr(common, "keep_memory", lambda: kept.append(None))

    @common_options(LOCAL, SPARK, explain="nothing")
    def command(common: common.Common) -> None:
        assert common.engine == engine

    command(engine=engine, master=None, form="table", explain=False)
    assert len(kept) == times
