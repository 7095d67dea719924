"""A command of Sluice that ends by SIGKILL before it changes a table: `python ends_early.py NUMBER ARGUMENTS`, the first change being 0."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pipeline.spark.builds.formats import Delta, Iceberg
from sluice_cli.__main__ import main

CHANGES = ("append", "append_once", "replace_runs")


def ending(real: Callable[..., Any], done: list[str], number: int) -> Callable[..., Any]:
    def change(*arguments: Any) -> Any:
        if len(done) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(real.__name__)
        return real(*arguments)

    return change


if __name__ == "__main__":
    changes: list[str] = []
    for kind in (Iceberg, Delta):
        for name in CHANGES:
            setattr(kind, name, ending(getattr(kind, name), changes, int(sys.argv[1])))
    main(sys.argv[2:])
