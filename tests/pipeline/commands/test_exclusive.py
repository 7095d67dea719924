"""Two roll-ups never write to the same directory at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.commands.rollup import rollup
from pipeline.errors import IncompleteError
from pipeline.rollup.exclusive import LOCK, exclusive

HOLDER = """
import sys, time
from pathlib import Path
from pipeline.rollup.exclusive import exclusive
with exclusive(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_roll_up_ends_with_the_process_of_the_first(tmp_path: Path) -> None:
    """While a roll-up writes, another one ends with exit code 3 and one line, starts no Spark, and leaves the directory as it is."""
    out = tmp_path / "out"
    with exclusive(out):
        (out / "table").mkdir()
        done = CliRunner().invoke(rollup, ["--in", str(tmp_path), "--out", str(out)])
        assert (done.exit_code, done.stdout) == (3, "")
        assert done.stderr == (
            f"sluice: {out}: another roll-up (process {os.getpid()}) writes to this directory; run this one again when it has ended\n"
        )
        assert sorted(path.name for path in out.iterdir()) == [LOCK, "table"]
    assert [path.name for path in out.iterdir()] == ["table"]


def test_a_killed_roll_up_leaves_no_lock(tmp_path: Path) -> None:
    """The lock of a killed process does not keep the next one from its work."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(IncompleteError, match=f"process {holder.pid}"), exclusive(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    with exclusive(tmp_path):
        assert (tmp_path / LOCK).read_text() == str(os.getpid())


def test_a_roll_up_that_wrote_nothing_leaves_no_directory(tmp_path: Path) -> None:
    """A directory that was created for the lock is removed if nothing else is in it."""
    with exclusive(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []
