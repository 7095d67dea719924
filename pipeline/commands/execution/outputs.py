"""Options that name where a command writes: a path of this machine."""

import re
from pathlib import Path
from typing import Any, Final

import click

from pipeline.commands.execution.exit_codes import BAD_INPUT

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class RefusedOutputError(click.ClickException):
    """A command cannot write there; shown as one line, as every other error is."""

    exit_code = BAD_INPUT

    def show(self, file: Any = None) -> None:
        """Print the line, as the command line does for errors of every other kind."""
        click.echo(f"sluice: {self.message}", file=file, err=file is None)


class OutputPath(click.Path):
    """A path that is written to. A URL is refused: as a path it would be a folder of that name in the current one.

    Raises, when the command line is read:
        RefusedOutputError: the value begins as a URL does.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path."""
        if isinstance(value, str) and _URL.match(value):
            option = param.opts[0] if param is not None else "output"
            remedy = "write a path of this machine and copy from there, or put ./ before a folder of that name"
            raise RefusedOutputError(f"{option} {value}: is a URL, and files are written to local paths only; {remedy}")
        return super().convert(value, param, ctx)


OUTPUT: Final = OutputPath()
