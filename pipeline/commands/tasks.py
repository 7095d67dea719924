"""Where tasks are done: in this process, or one per task on Spark."""

from collections.abc import Sequence

import click

from pipeline.whatif.outcome import Outcome
from pipeline.whatif.work import Work, do_all

PROGRESS_FROM = 8
"""So few tasks are done before anybody reads a line about them."""


def do_on(engine: str, master: str | None, work: Sequence[Work], *, verbose: bool = False) -> list[list[list[Outcome]]]:
    """Do all tasks; say on stderr how far it is.

    Raises:
        BadInputError, IncompleteError: a file cannot be used, or Spark does not start.
    """
    if engine == "spark":
        from pipeline.spark.session import session
        from pipeline.spark.whatif import do_on_spark

        with session(master, verbose=verbose) as spark:
            return do_on_spark(spark, work)
    many = len(work) >= PROGRESS_FROM

    def tell(done: int) -> None:
        if many and done % max(1, len(work) // 10) == 0:
            click.echo(f"sluice: {done} of {len(work)} tasks done", err=True)

    return do_all(work, tell)
