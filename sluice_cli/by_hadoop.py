"""Commands that change files, in a directory at a URL that Hadoop opens."""

from typing import Any

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import session_for
from pipeline.commands.execution.options import LOCAL, SPARK, Common, common_options
from sluice.object_store import ObjectStore


def by_hadoop(command: click.Command) -> click.Command:
    """Return a command with the options of Spark. With `--engine spark` Hadoop opens its directory, if that is a URL.

    Args:
        command: has a parameter `directory`, which may be an `ObjectStore`.
    """
    change: Any = command.callback

    @click.pass_context
    @clear_errors
    @common_options(LOCAL, SPARK)
    def callback(context: click.Context, directory: str, common: Common, **options: Any) -> None:
        with session_for(directory, common) as spark:
            context.invoke(change, directory=directory if spark is None else _store_at(spark, directory), **options)

    added = getattr(callback, "__click_params__", [])
    return click.Command(command.name, params=[*command.params, *reversed(added)], callback=callback, help=command.help)


def _store_at(spark: Any, url: str) -> ObjectStore:
    from pipeline.spark.hadoop_files import hadoop_store

    return hadoop_store(spark, url)
