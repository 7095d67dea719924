"""A path option of commands that change files in place, which no object store can."""

from pathlib import Path
from typing import Any, Final

import click

from sluice.object_store import is_url, shown_url

BAD_INPUT: Final = 2


class NotLocalError(click.ClickException):
    """The value is a URL. It is shown as one line, like every error."""

    exit_code = BAD_INPUT

    def show(self, file: Any = None) -> None:
        """Print the message in the form that other errors have."""
        click.echo(f"sluice: {self.message}", file=file, err=file is None)


class LocalPath(click.Path):
    """A path of this machine; pathlib would take a URL for a folder of that name.

    Raises, when the command line is read:
        NotLocalError: the value is a URL.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path."""
        if isinstance(value, str) and is_url(value):
            option = param.opts[0] if isinstance(param, click.Option) else "the directory"
            remedy = "name a path of this machine, or put ./ before a folder of that name"
            raise NotLocalError(f"{shown_url(value)}: is a URL, and {option} has to be on this machine; {remedy}")
        return super().convert(value, param, ctx)


LOCAL_PATH: Final = LocalPath()
