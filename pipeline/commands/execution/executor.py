"""Executors: work is done in this process, or on Spark."""

import contextlib
from collections.abc import Iterator, Sequence

import click

from pipeline.commands.execution.options import SPARK, Common
from pipeline.tasks import Doer, Job, R, W, do_here

PROGRESS_FROM = 8
"""Fewer parts end too soon for a line of progress to be read."""


@contextlib.contextmanager
def doer(common: Common) -> Iterator[Doer]:
    """Do work where the options say, for a block; in this process say on stderr how far it is.

    Raises:
        BadInputError, IncompleteError: a file cannot be used, or Spark does not start.
    """
    if common.engine != SPARK:
        yield _here
        return
    from pipeline.spark.session import session
    from pipeline.spark.tasks import do_on_spark

    with session(common.master, verbose=common.verbose) as spark:

        def there(job: Job[W, R], parts: Sequence[W]) -> list[R]:
            return do_on_spark(spark, job, parts)

        yield there


def _here(job: Job[W, R], parts: Sequence[W]) -> list[R]:
    def tell(done: int) -> None:
        if len(parts) >= PROGRESS_FROM and done % max(1, len(parts) // 10) == 0:
            click.echo(f"sluice: {done} of {len(parts)} tasks done", err=True)

    return do_here(job, parts, tell)
