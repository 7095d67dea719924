"""A run of all tests is divided among processes as tests/support/side_by_side.py says, with the installed pytest and pytest-xdist."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT
from tests.support.side_by_side import options

CONFTEST = "from tests.conftest import pytest_collection_modifyitems\n"
SPARK = "import pytest\n\n@pytest.fixture\ndef spark(): ...\n\n"
TESTS = "def test_{name}_0({fixture}): ...\ndef test_{name}_1(): ...\ndef test_{name}_2({fixture}): ...\n"
PASSED = re.compile(r"^\[(gw\d+)\] .*PASSED test_\w\.py::(test_\w+)@(\S+)", re.MULTILINE)


def test_files_and_the_tests_of_spark_stay_together(tmp_path: Path) -> None:
    """All tests of a file run in one process, and all tests that use Spark run in one process."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n  long: takes long\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "abcd":
        fixture = "spark" if name in "ab" else ""
        (tmp_path / f"test_{name}.py").write_text((SPARK if fixture else "") + TESTS.format(name=name, fixture=fixture))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options()]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120)
    ran = PASSED.findall(done.stdout)
    assert len(ran) == 12, done.stdout + done.stderr
    groups = {test.removeprefix("test_"): group for _, test, group in ran}
    assert groups == {
        f"{name}_{number}": "spark" if name in "ab" and number != 1 else f"test_{name}.py" for name in "abcd" for number in range(3)
    }
    assert len({(process, group) for process, _, group in ran}) == len(set(groups.values()))
