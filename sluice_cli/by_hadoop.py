"""Commands that change files, in a directory at a URL that Hadoop opens."""

from typing import Any

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import store_of_spark
from pipeline.commands.execution.options import LOCAL, SPARK, Common, common_options


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
        with store_of_spark(directory, common) as store:
            context.invoke(change, directory=directory if store is None else store, **options)

    added = getattr(callback, "__click_params__", [])
    return click.Command(command.name, params=[*command.params, *reversed(added)], callback=callback, help=command.help)
