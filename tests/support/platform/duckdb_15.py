"""DuckDB 1.5.5 with its extensions for Iceberg and Delta, in an environment of its own below build/: PyPI has none for DuckDB 2."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.places import BUILD
from tests.support.platform import duckdb_statements

EXTENSIONS = {"iceberg": ("avro", "httpfs", "iceberg"), "delta": ("delta",)}
"""Extensions by the format of the tables, in the order in which DuckDB loads them."""
_PINS = Path(__file__).with_name("duckdb.txt")
_HOME = BUILD / "duckdb-1.5.5"


def run_on_duckdb(tables: str, statements: Sequence[str]) -> list[list[list[Any]]]:
    """Return the rows of each statement.

    Args:
        tables: a key of `EXTENSIONS`.
        statements: in SQL; the first one that fails ends the run.
    """
    command = [_python(), duckdb_statements.__file__, *EXTENSIONS[tables]]
    done = subprocess.run(command, input=json.dumps(list(statements)), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    answers: list[list[list[Any]]] = json.loads(done.stdout)
    return answers


def _python() -> Path:
    """Return the Python that has DuckDB 1.5; it is installed first (240 MB, once)."""
    python = _HOME / "bin/python"
    if not (_HOME / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", _HOME], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", _PINS], check=True)
        (_HOME / ".installed").touch()
    return python
