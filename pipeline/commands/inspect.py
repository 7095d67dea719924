"""`sluice meter inspect`."""

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import store_of_spark
from pipeline.commands.execution.options import Common, common_options
from pipeline.storage.paths import StoreDirectory, StorePath, path_of


@click.command()
@click.argument("file")
@clear_errors
@common_options("local", "spark", explain="Print type, null count, minimum and maximum of each column.")
def inspect(file: str, common: Common) -> None:
    """Print the content of a manifest, a Parquet file or an open segment: table, row count and first rows."""
    from pipeline.commands.execution.output import write_output
    from pipeline.commands.inspection import as_dict, column_lines, draw_inspected, inspected, lines_of, rows_of

    with store_of_spark(file, common) as store:
        path = path_of(file) if store is None else StorePath(StoreDirectory(store))
        found = inspected(path)
    lines = [*lines_of(found), *(column_lines(found) if common.explain else ())]
    write_output(common.form, None, as_dict(found), lines, rows_of(found), lambda: draw_inspected(path.name, found))
