"""Options for an output path: of this machine, or a URL of an object store."""

import re
from pathlib import Path
from typing import Any, Final

import click

from pipeline.commands.execution.exit_codes import BAD_INPUT
from pipeline.errors import BadInputError
from pipeline.storage.paths import is_of_hadoop, path_of
from sluice.object_store import SCHEMES, is_url

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class RefusedPathError(click.ClickException):
    """A command cannot use a path. It is shown as one line, like every error."""

    exit_code = BAD_INPUT

    def show(self, file: Any = None) -> None:
        """Print the message in the form that other errors have."""
        click.echo(f"sluice: {self.message}", file=file, err=file is None)


_LOCAL: Final = "write a path of this machine and copy from there, or put ./ before a folder of that name"


class OutputPath(click.Path):
    """An output path. Other URLs are refused, since they would create a local directory with that name.

    Args:
        stores: whether a URL of an object store is accepted, which pyarrow opens.
        by_hadoop: whether Spark may write it. The value of a URL of no object store is then its text, for `opener`.

    Raises, when the command line is read:
        RefusedPathError: the value is a URL that is not accepted.
    """

    def __init__(self, *, stores: bool, by_hadoop: bool = False) -> None:
        super().__init__(path_type=Path)
        self._stores, self._by_hadoop = stores, by_hadoop

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path."""
        if isinstance(value, str) and self._by_hadoop and is_of_hadoop(value):
            return value
        if isinstance(value, str) and _URL.match(value):
            option = param.opts[0] if param is not None else "output"
            if not self._stores or value.partition("://")[0] not in SCHEMES:
                raise RefusedPathError(f"{option} {value}: {self._refusal}")
            try:
                return path_of(value)
            except BadInputError as error:
                raise RefusedPathError(f"{option} {error}") from error
        return super().convert(value, param, ctx)

    @property
    def _refusal(self) -> str:
        if self._stores:
            return f"is a URL of no object store; write s3://BUCKET/PATH, gs:// or abfs://, or {_LOCAL}"
        return f"is a URL, and files are written to local paths only; {_LOCAL}"


class SparkOutputPath(OutputPath):
    """An output of a command that Spark may run: a path of this machine, or the text of a URL, which Spark or pyarrow opens.

    Raises, when the command line is read:
        RefusedPathError: the value is a URL without a host, or of this machine.
    """

    def __init__(self) -> None:
        super().__init__(stores=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path, or as the URL that it is."""
        return value if isinstance(value, str) and is_url(value) else super().convert(value, param, ctx)

    @property
    def _refusal(self) -> str:
        return f"is no URL of another file system; write s3a://BUCKET/PATH, hdfs://HOST/PATH or another one that Hadoop knows, or {_LOCAL}"


OUTPUT_OF_ENGINE: Final = OutputPath(stores=True, by_hadoop=True)
"""Of a command that either engine runs."""
LOCAL_OUTPUT: Final = OutputPath(stores=False)
"""Of an archive."""
SPARK_OUTPUT: Final = SparkOutputPath()
