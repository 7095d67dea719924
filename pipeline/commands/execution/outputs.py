"""Options for an output path on this machine."""

import re
from pathlib import Path
from typing import Any, Final

import click

from pipeline.commands.execution.exit_codes import BAD_INPUT

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class RefusedPathError(click.ClickException):
    """A command cannot use a path. It is shown as one line, like every error."""

    exit_code = BAD_INPUT

    def show(self, file: Any = None) -> None:
        """Print the message in the form that other errors have."""
        click.echo(f"sluice: {self.message}", file=file, err=file is None)


class OutputPath(click.Path):
    """An output path. A URL is refused, since it would create a local directory with that name.

    Raises, when the command line is read:
        RefusedPathError: the value is a URL.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path."""
        if isinstance(value, str) and _URL.match(value):
            option = param.opts[0] if param is not None else "output"
            remedy = "write a path of this machine and copy from there, or put ./ before a folder of that name"
            raise RefusedPathError(f"{option} {value}: is a URL, and files are written to local paths only; {remedy}")
        return super().convert(value, param, ctx)


OUTPUT: Final = OutputPath()
