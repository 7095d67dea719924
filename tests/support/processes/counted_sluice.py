"""A Sluice whose decisions are also counted independently: `python -m tests.support.processes.counted_sluice run ... --metering DIR`.

COUNT names a file. Its first eight bytes are the number of decisions that the meter has recorded; they are mapped, so they survive SIGKILL.
The file with the additional suffix `.run` has the id of the run. Only the level `trace` records every decision in one place; at other
levels the number stays 0.
"""

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Any, Final

from proxy.meter.meter import TracingMeter
from proxy.metering import metering
from sluice_cli.__main__ import main

COUNT: Final = "SLUICE_TEST_COUNT"
_NUMBER: Final = Struct("=q")


class CountingMeter(TracingMeter):
    """Counts each decision after it is recorded: after a kill between the two the files have one decision more."""

    __slots__ = ("_count",)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        path = Path(os.environ[COUNT])
        path.write_bytes(bytes(_NUMBER.size))
        with path.open("r+b") as file:
            self._count = memoryview(mmap.mmap(file.fileno(), _NUMBER.size)).cast("q")

    def _note(self, *arguments: Any) -> None:
        super()._note(*arguments)
        self._count[0] += 1


class NamedMetering(metering.Metering):
    """Writes the id of its run."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        Path(os.environ[COUNT]).with_suffix(".run").write_text(self.run_id)


def counted(path: Path) -> tuple[str, int]:
    """Return (id of the run, recorded decisions) of a process with COUNT = `path`."""
    decisions = _NUMBER.unpack(path.read_bytes())[0] if path.exists() else 0
    return path.with_suffix(".run").read_text(), decisions


if __name__ == "__main__":
    metering.TracingMeter = CountingMeter  # type: ignore[misc]
    metering.Metering = NamedMetering  # type: ignore[misc]
    main()
