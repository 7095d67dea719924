"""Options for an input path: of this machine, or a URL of an object store."""

from typing import Any, Final

import click

from pipeline.commands.execution.outputs import RefusedPathError
from pipeline.errors import BadInputError
from pipeline.storage.paths import path_of


class InputPath(click.ParamType[Any]):
    """A file or directory to read.

    Raises, when the command line is read:
        RefusedPathError: the value is an invalid URL.
    """

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path."""
        if not isinstance(value, str):
            return value
        try:
            return path_of(value)
        except BadInputError as error:
            option = param.opts[0] if param is not None else "input"
            raise RefusedPathError(f"{option} {error}") from error


INPUT: Final = InputPath()
