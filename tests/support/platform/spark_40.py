"""Spark 4.0.1 with Iceberg and Delta, in an environment of its own below build/: neither has a release for the Spark of this project."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.places import BUILD
from tests.support.platform import spark_statements

PACKAGES = ("pyspark==4.0.1", "py4j==0.10.9.9")
JARS = {
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0", "org.xerial:sqlite-jdbc:3.50.3.0"),
    "delta": ("io.delta:delta-spark_2.13:4.0.1", "io.delta:delta-storage:4.0.1"),
}
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_HOME = BUILD / "spark-4.0.1"


def run_on_spark(folder: Path, tables: str, statements: list[str]) -> list[list[list[Any]] | str]:
    """Return the rows of each statement, or the begin of its error.

    Args:
        folder: has the catalog `lake` of Iceberg tables, or is empty.
        tables: a key of `JARS`.
        statements: in SQL.
    """
    command = [_python(), spark_statements.__file__, ",".join(map(str, _jars(tables))), folder, tables]
    done = subprocess.run(
        list(map(str, command)), input=json.dumps(statements), capture_output=True, text=True, timeout=600, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    answers: list[list[list[Any]] | str] = json.loads(done.stdout.splitlines()[-1])
    return answers


def _python() -> Path:
    """Return the Python that has PySpark; it is installed first (450 MB, once)."""
    python = _HOME / "environment/bin/python"
    if not (_HOME / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", _HOME / "environment"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
        (_HOME / ".installed").touch()
    return python


def _jars(tables: str) -> list[Path]:
    """Return the jars; Maven fetches those that are missing (70 MB, once)."""
    found = []
    for artifact in JARS[tables]:
        _, name, version = artifact.split(":")
        found.append(_HOME / "jars" / f"{name}-{version}.jar")
        if not found[-1].exists():
            options = (f"-Dartifact={artifact}", f"-DoutputDirectory={_HOME / 'jars'}", f"-Dmaven.repo.local={BUILD / 'maven'}")
            subprocess.run(["mvn", "-B", "-q", _COPY, *options], check=True)
    return found
