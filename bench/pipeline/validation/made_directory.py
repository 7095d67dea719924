"""Metering directories that a bench makes once and keeps beside what is known of them."""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.metering.fleet_trace import MadeByMembers
from bench.metering.trace import Shape
from bench.metering.workers_trace import Made

A_SECOND: Final = 10_000
"""Decisions of all processes."""
TAKEN_BACK: Final = 0.01


def made_directory(folder: Path, events: int, processes: int, kind: str, make: Callable[[Path, Shape, int], Made | MadeByMembers]) -> Path:
    """Return a directory of this many decisions; it is made unless it exists.

    Args:
        kind: "workers" or "members".
    """
    directory = folder / f"{kind}-{processes}-{events}"
    if not kept_in(directory).exists():
        shape = Shape(events, seconds=max(60, events // A_SECOND), unrecord_share=TAKEN_BACK)
        print(f"  making {directory.name}: {events:,} decisions of {processes} {kind}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            made = make(Path(unfinished) / directory.name, shape, processes)
            (Path(unfinished) / directory.name).rename(directory)
        kept_in(directory).write_text(json.dumps(asdict(made)))
    return directory


def known_of(directory: Path) -> dict[str, Any]:
    """Return the attributes of what `make` returned."""
    known: dict[str, Any] = json.loads(kept_in(directory).read_text())
    return known


def kept_in(directory: Path) -> Path:
    """Return the file beside a directory that says what it contains."""
    return directory.with_suffix(".json")
