"""Options for an input path: of this machine, or a URL of an object store, or one that only Hadoop knows."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click

from pipeline.commands.execution.options import SPARK, Common
from pipeline.commands.execution.outputs import RefusedPathError
from pipeline.errors import BadInputError
from pipeline.session_settings import SessionSettings
from pipeline.storage.paths import AnyPath, is_of_hadoop, path_of
from sluice.object_store import ObjectStore, is_url, shown_url


class InputPath(click.ParamType[Any]):
    """A file or directory to read.

    Args:
        by_hadoop: whether Spark may read it. The value of a URL of no object store is then its text, for `opener`.

    Raises, when the command line is read:
        RefusedPathError: the value is an invalid URL.
    """

    name = "path"

    def __init__(self, *, by_hadoop: bool = False) -> None:
        self._by_hadoop = by_hadoop

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path."""
        if not isinstance(value, str) or (self._by_hadoop and is_of_hadoop(value)):
            return value
        try:
            return path_of(value)
        except BadInputError as error:
            option = param.opts[0] if param is not None else "input"
            raise RefusedPathError(f"{option} {error}") from error


INPUT: Final = InputPath()
INPUT_OF_ENGINE: Final = InputPath(by_hadoop=True)
"""Of a command that either engine runs."""
source_option: Final = click.option(
    "--in",
    "source",
    type=INPUT_OF_ENGINE,
    required=True,
    metavar="DIR",
    help="Metering directory to read: a path, or a URL such as s3://BUCKET/DIR.",
)
"""The directory of such a command."""

Given = tuple[str, AnyPath | str | None]
"""An option and its value. A text is a URL that Hadoop opens."""
Open = Callable[[AnyPath | str], AnyPath]
"""Opens a value. It raises BadInputError if Spark has no jar for a URL."""


@contextlib.contextmanager
def opener(engine: str, settings: SessionSettings, given: Sequence[Given], *, python_tasks: bool = False) -> Iterator[Open]:
    """Yield the function that opens the values of options. Spark starts before the block if one is a text.

    Sessions that the block opens are the same one.

    Args:
        engine: the engine of the command.
        settings: how Spark starts.
        given: the options.
        python_tasks: as `session` has it.

    Raises:
        BadInputError: the engine is not Spark.
    """
    urls = [(option, value) for option, value in given if isinstance(value, str)]
    if not urls:
        yield _opened
        return
    if engine != SPARK:
        raise _needs_spark(" ".join((urls[0][0], shown_url(urls[0][1]))))
    from pipeline.spark.hadoop_files import hadoop_path
    from pipeline.spark.session import session

    with session(settings, python_tasks=python_tasks) as spark:
        yield lambda value: hadoop_path(spark, value) if isinstance(value, str) else value


def _needs_spark(named: str) -> BadInputError:
    return BadInputError(f"{named}: is a URL of no object store, so only Hadoop can know it; add --engine spark")


@contextlib.contextmanager
def store_of_spark(place: str, common: Common) -> Iterator[ObjectStore | None]:
    """Yield what Hadoop opens at a URL; None with the local engine. For a command that does not run its work on Spark.

    Args:
        place: the argument of the command.
        common: its options.

    Raises:
        BadInputError: Spark is asked for, and the place is a path; or Spark is not, and only Hadoop knows the URL.
    """
    if common.engine != SPARK:
        if is_of_hadoop(place):
            raise _needs_spark(shown_url(place))
        yield None
        return
    if not is_url(place):
        raise BadInputError(f"--engine spark: {place} is on this machine, so this command reads it without Spark; leave it out")
    from pipeline.spark.hadoop_files import hadoop_store
    from pipeline.spark.session import session

    with session(common.session) as spark:
        yield hadoop_store(spark, place)


def _opened(value: AnyPath | str) -> AnyPath:
    assert not isinstance(value, str)
    return value
