"""Executors: a job runs in this process or on Spark."""

import contextlib
from collections.abc import Iterator, Sequence

import click

from pipeline.commands.execution.options import SPARK, Common
from pipeline.tasks import Executor, Job, R, W, run_local

PROGRESS_FROM = 8
"""Lowest number of parts for which progress is shown; fewer parts end too soon."""


@contextlib.contextmanager
def executor(common: Common, *, by_hadoop: bool = False) -> Iterator[Executor]:
    """Yield the executor that the options select. In this process, it writes progress to stderr.

    Args:
        common: the options.
        by_hadoop: whether Spark reads all URLs. Otherwise its tasks read object stores by pyarrow.

    Raises:
        BadInputError, IncompleteError: a file cannot be used, or Spark does not start.
    """
    if common.engine != SPARK:
        yield _here
        return
    from pipeline.spark.session import session
    from pipeline.spark.tasks import run_on_spark

    with session(common.session) as spark:

        def there(job: Job[W, R], parts: Sequence[W]) -> list[R]:
            return run_on_spark(spark, job, parts, by_hadoop=by_hadoop)

        yield there


def _here(job: Job[W, R], parts: Sequence[W]) -> list[R]:
    def report(done: int) -> None:
        if len(parts) >= PROGRESS_FROM and done % max(1, len(parts) // 10) == 0:
            click.echo(f"sluice: {done} of {len(parts)} tasks done", err=True)

    return run_local(job, parts, report)
