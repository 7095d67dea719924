"""`sluice meter register` and `rollup --sink iceberg` as commands, on one trace and a catalog in SQLite."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyiceberg.catalog import load_catalog

from bench.harness.engine import ROOT

NAMESPACE = "sluice"


class InCatalog(NamedTuple):
    """One run of a command.

    Attributes:
        what: the command, in words.
        files: data files of the table afterwards.
        missing: decisions of the trace that the table does not have.
    """

    what: str
    events: int
    seconds: float
    files: int
    missing: int

    def line(self) -> str:
        """Return the line to print."""
        return f"{self.what}: {self.events:,} decisions in {self.files} files, {self.seconds:.1f} s, {self.missing:,} decisions missing"


def in_catalog(trace: Path, folder: Path, events: int) -> Iterator[InCatalog]:
    """Register a trace twice, and roll it up, in a new catalog below `folder`.

    Raises:
        RuntimeError: a command failed; the text is its output.
    """
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    options = [text for name, value in properties.items() for text in ("--property", f"{name}={value}")]
    register = ["register", str(trace), "--table", f"{NAMESPACE}.decisions"]
    rollup = ["rollup", "--in", str(trace), "--sink", "iceberg", "--namespace", NAMESPACE]
    for what, command, table, column in (
        ("register as typed", register, "decisions", "n"),
        ("the same again", register, "decisions", "n"),
        ("rollup --sink iceberg as typed", rollup, "decisions_hour", "decisions"),
    ):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "sluice_cli", "meter", *command, *options], cwd=ROOT, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        if done.returncode:
            raise RuntimeError(done.stderr)
        scan = load_catalog("default", **properties).load_table((NAMESPACE, table)).scan(selected_fields=(column,))
        decisions = sum(scan.to_arrow().column(column).to_pylist())
        yield InCatalog(what, events, seconds, len(list(scan.plan_files())), events - decisions)
