"""`sluice meter validate` and `rollup` on many small file sets, before and after `sluice meter compact`, as commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.metering.trace import Shape, decide, write
from bench.pipeline.measured_command import Measured, measured_command
from pipeline.manifest import manifest_paths

FILE_SET_S = 60
DECISIONS_EACH = 50
GROUPS = 6


class Arm(NamedTuple):
    """One command.

    Attributes:
        file_sets: number of file sets that it read.
        each_ms: its time for each of the file sets that the proxy wrote, in ms.
    """

    command: str
    file_sets: int
    seconds: float
    cpu_seconds: float
    mib_max: int
    each_ms: float

    def line(self) -> str:
        """Return the row of the table."""
        return (
            f"| {self.command} | {self.file_sets:,} | {self.seconds:.1f} | {self.cpu_seconds:.1f} | {self.mib_max:,} | {self.each_ms:.1f} |"
        )


HEADER = (
    "| as typed | file sets | s | s of CPU | MiB at most | ms for each file set of the proxy |",
    "|---|---|---|---|---|---|",
)


def measured_small(folder: Path, file_sets: int) -> Iterator[Arm]:
    """Write this many file sets, and measure the commands on them.

    Raises:
        RuntimeError: a verdict is not clean, or differs after the compaction.
    """
    shape = Shape(file_sets * DECISIONS_EACH, GROUPS, seconds=file_sets * FILE_SET_S, file_set_seconds=FILE_SET_S)
    directory = write(folder / "small", shape, decide(shape))
    verdicts = []
    for name in ("before", "after"):
        number = len(manifest_paths(directory))
        judged = measured_command(["meter", "validate", "--in", str(directory), "--format", "json"], folder / "validate.json")
        verdict = json.loads(judged.output)
        verdicts.append([verdict[key] for key in ("verdict", "decisions", "counts", "incomplete")])
        yield _arm("validate", number, judged, file_sets)
        out = folder / f"tables-{name}"
        rolled_up = measured_command(
            ["meter", "rollup", "--in", str(directory), "--out", str(out), "--engine", "local"], folder / "rollup.txt"
        )
        yield _arm("rollup --engine local", number, rolled_up, file_sets)
        if name == "before":
            yield _arm("compact", number, measured_command(["meter", "compact", str(directory)], folder / "compact.txt"), file_sets)
    if verdicts[0] != verdicts[1] or verdicts[0][1] != shape.events or verdicts[0][3]:
        raise RuntimeError(f"the verdict changed: {verdicts}")


def _arm(command: str, number: int, measured: Measured, file_sets: int) -> Arm:
    return Arm(command, number, measured.seconds, measured.cpu_seconds, measured.mib_max, measured.seconds * 1_000 / file_sets)
