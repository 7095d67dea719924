"""Memory of commands that validate many files."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.commands.execution import options as common
from pipeline.commands.execution.options import LOCAL, SPARK, common_options
from pipeline.memory import ARROW_KEEPS, HEAP_MIB_MAX, HEAP_MIB_MIN, heap_mib, memory_bytes

SAID = "from os import environ; print(environ.get('MIMALLOC_PURGE_DELAY'))"


def reported(program: str) -> str:
    """Return what a Python process without that variable prints."""
    environment = {"PATH": ""}
    return subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


@pytest.mark.parametrize(("before", "said"), [("", ARROW_KEEPS[1]), ("import pyarrow; ", "None")])
def test_arrow_is_configured_before_it_is_loaded(before: str, said: str) -> None:
    """`keep_memory` sets the variable for Arrow only when Arrow is not imported yet."""
    assert reported(f"{before}from pipeline.memory import keep_memory; keep_memory(); {SAID}") == said


@pytest.mark.parametrize("module", ["pipeline.commands.validate", "pipeline.commands.execution.options", "sluice_cli.meter"])
def test_a_command_loads_no_arrow_before_it_knows_where_to_work(module: str) -> None:
    """Importing a command does not import Arrow."""
    assert reported(f"import sys, {module}; print('pyarrow' in sys.modules)") == "False"


@pytest.mark.parametrize(("engine", "times"), [(LOCAL, 1), (SPARK, 0)])
def test_memory_is_kept_where_the_work_is_done(monkeypatch: pytest.MonkeyPatch, engine: str, times: int) -> None:
    """A command calls `keep_memory` with the local engine and not in the driver of Spark."""
    kept: list[None] = []
    monkeypatch.setattr(common, "keep_memory", lambda: kept.append(None))

    @common_options(LOCAL, SPARK, explain="nothing")
    def command(common: common.Common) -> None:
        assert common.engine == engine

    command(engine=engine, master=None, form="table", explain=False)
    assert len(kept) == times


MIB = 2**20
MACHINE = {"proc/meminfo": "MemTotal:        8388608 kB\nMemFree:         1 kB\n"}
TWO = {**MACHINE, "proc/self/cgroup": "0::/house/sluice\n"}
ONE = {**MACHINE, "proc/self/cgroup": "12:pids:/\n4:memory:/house/sluice\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        pytest.param(MACHINE, 8_192, id="no cgroup"),
        pytest.param(TWO | {"sys/fs/cgroup/house/sluice/memory.max": "max\n"}, 8_192, id="no limit"),
        pytest.param(TWO | {"sys/fs/cgroup/house/sluice/memory.max": f"{512 * MIB}\n"}, 512, id="own limit"),
        pytest.param(
            TWO | {"sys/fs/cgroup/house/sluice/memory.max": "max\n", "sys/fs/cgroup/house/memory.max": f"{768 * MIB}\n"},
            768,
            id="limit above",
        ),
        pytest.param(TWO | {"sys/fs/cgroup/memory.max": f"{256 * MIB}\n"}, 256, id="a container sees its own as the top"),
        pytest.param(ONE | {"sys/fs/cgroup/memory/house/sluice/memory.limit_in_bytes": f"{640 * MIB}\n"}, 640, id="version 1"),
        pytest.param(ONE | {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8_192, id="version 1, no limit"),
    ],
)
def test_memory_is_what_machine_and_cgroups_allow(tmp_path: Path, files: dict[str, str], mib: int) -> None:
    """The available memory is the smallest limit of the machine and its cgroups, in both cgroup versions."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_bytes(tmp_path) == mib * MIB


@pytest.mark.parametrize(("mib", "heap"), [(24_576, 12_288), (4_096, 2_048), (512, HEAP_MIB_MIN), (1_048_576, HEAP_MIB_MAX)])
def test_the_heap_fits_the_memory(mib: int, heap: int) -> None:
    """The heap is half of the memory, within `HEAP_MIB_MIN` and `HEAP_MIB_MAX`."""
    assert heap_mib(mib * MIB) == heap
