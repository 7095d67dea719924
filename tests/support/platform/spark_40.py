"""Spark 4.0.1 with Iceberg, Delta and Kafka, in an environment of its own below build/: none has a release for the Spark of this project.

Commands of Sluice run in the project's environment, with PySpark 4.0.1 before it on the path of Python.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.places import BUILD, ROOT
from tests.support.platform import spark_statements
from tests.support.platform.jars import jars

PACKAGES = ("pyspark==4.0.1", "py4j==0.10.9.9")
ENDS_EARLY = Path(__file__).with_name("ends_early.py")
_HOME = BUILD / "spark-4.0.1"


def run_on_spark(folder: Path, tables: str, statements: list[str]) -> list[list[list[Any]] | str]:
    """Return the rows of each statement, or the begin of its error.

    Args:
        folder: has the catalog `lake` of Iceberg tables, or is empty.
        tables: a key of `JARS`.
        statements: in SQL.
    """
    answers: list[list[list[Any]] | str] = json.loads(script_on_spark(tables, spark_statements.__file__, folder, tables, lines=statements))
    return answers


def script_on_spark(tables: str, script: str, *arguments: object, lines: object = None) -> str:
    """Run a Python file, and return the last line that it prints.

    Args:
        tables: a key of `JARS`.
        script: path of the file; its first argument are the jars.
        arguments: more arguments.
        lines: goes to its standard input as JSON.
    """
    command = [sys.executable, script, jars(tables), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment(), input=json.dumps(lines), capture_output=True, text=True, timeout=900, check=False, cwd=BUILD
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()[-1]


def sluice_command(tables: str, folder: Path, *arguments: object, store: dict[str, str] | None = None) -> list[str]:
    """Return a command of `sluice meter` on two cores.

    Args:
        tables: a key of `JARS`; empty: no jar.
        folder: has the catalog `lake` of Iceberg tables, or gets it.
        arguments: of the command.
        store: settings of Spark for an object store; None: it gets no jar for one.
    """
    names = (*([tables] if tables else []), *([] if store is None else ["s3a-4.0"]))
    settings = {"spark.jars": jars(*names)} if names else {}
    if tables == "iceberg":
        settings |= {key: value for key, value in spark_statements.with_iceberg(str(folder)).items() if ".catalog." in key}
    settings |= store or {}
    conf = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    return [str(Path(sys.executable).with_name("sluice")), "meter", *map(str, arguments), "--master", "local[2]", *conf]


def run_on_spark_40(command: list[str], *, exit_code: int = 0) -> str:
    """Run a command of `sluice_command`, and return what it prints."""
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == exit_code, done.stderr
    return done.stdout + done.stderr


def killed_on_spark(command: list[str], number: int) -> None:
    """Run a command of `sluice_command` that is killed before it changes a table, the first change being 0."""
    program, *arguments = command
    done = subprocess.run(
        [str(Path(program).with_name("python")), ENDS_EARLY, str(number), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def environment() -> dict[str, str]:
    """Return the environment of a command or test of Sluice. Credentials of a store are in the settings of Spark."""
    (packages,) = (_python().parents[1] / "lib").glob("python3*/site-packages")
    given = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return given | {"PYTHONPATH": f"{packages}:{ROOT}", "SPARK_DRIVER_MEMORY": "1g"}


def _python() -> Path:
    """Return the Python that has PySpark; it is installed first (450 MB, once)."""
    python = _HOME / "environment/bin/python"
    if not (_HOME / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", _HOME / "environment"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
        (_HOME / ".installed").touch()
    return python
