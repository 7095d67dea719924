"""Every promise in SECURITY.md names the tests that verify it, and each of these tests exists."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECURITY = (ROOT / "SECURITY.md").read_text()
PROMISES = "## What Sluice promises"
TEST_NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)(?:\[[^\]`]+\])?`")
TEST_LIST = re.compile(r"\((?:`(?:tests/[\w/]+\.py::)?test_\w+(?:\[[^\]`]+\])?`(?:,\s*|\)))+")


def promises() -> list[str]:
    """Return each promise as one line."""
    section = SECURITY.split(f"{PROMISES}\n", 1)[1].split("\n## ", 1)[0]
    return [" ".join(part.split()) for part in section.split("\n* ")[1:]]


def defined() -> dict[str, set[str]]:
    """Return a mapping from the name of every test to the files, relative to the project, that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[node.name].add(path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise[:50])
def test_every_promise_names_the_tests_that_hold_it(promise: str) -> None:
    """Every promise ends with its tests: (`test_a`, `test_b`), or `tests/FOLDER/test_file.py::test_a` where a name is not unique."""
    assert TEST_LIST.search(promise), "write the tests that hold this behind it: (`test_a`, `test_b`)"


def test_every_test_that_is_named_exists() -> None:
    """Every test that a promise names exists, in the file that the promise names if it names one."""
    tests = defined()
    named = TEST_NAMED.findall(SECURITY)
    assert named
    absent = [f"{file}::{name}" if file else name for file, name in named if not tests[name] or (file and file not in tests[name])]
    assert absent == []


def test_there_are_promises() -> None:
    """SECURITY.md has a section of promises that the other tests of this file read."""
    assert len(promises()) >= 6
