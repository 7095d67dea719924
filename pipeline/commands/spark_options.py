"""Options of every command that can use Spark."""

from collections.abc import Callable
from typing import Any

import click


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--master` and `--verbose` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--master", help="Where Spark runs; all cores of this machine unless spark-submit says otherwise."),
    click.option("-v", "--verbose", is_flag=True, help="Let Spark's own log through, warnings and errors, on stderr."),
)
