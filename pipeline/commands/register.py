"""`sluice meter register`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from pipeline.commands.execution.catalog import catalog_options, chosen_catalog
from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import INPUT
from pipeline.commands.execution.options import Common, common_options
from pipeline.storage.paths import AnyPath

if TYPE_CHECKING:
    from pipeline.iceberg.registration import Registered

OF: Final = ("samples", "events", "usage", "comparisons", "shares", "dim_group", "dim_bound", "dim_client", "states", "gaps")
_COLUMNS: Final = ("change", "rows", "file")


@click.command()
@click.argument("directory", type=INPUT)
@click.option("--table", "name", required=True, metavar="NAMESPACE.NAME", help="The Iceberg table; it is made if necessary.")
@click.option("--of", "table", type=click.Choice(OF), default=OF[0], show_default=True, help="Metering table whose files are registered.")
@catalog_options
@clear_errors
@common_options("local", because="only footers of files are read", explain="Print each file that was added or removed.")
def register(directory: AnyPath, name: str, table: str, catalog: str | None, properties: Sequence[str], common: Common) -> None:
    """Make finished metering files an Iceberg table in place, without a copy. Files that were removed leave the table.

    DIRECTORY is a path, or a URL such as s3://BUCKET/DIR.
    """
    from pipeline.commands.execution.output import write_output
    from pipeline.errors import BadInputError

    opened = chosen_catalog(catalog, properties).open("register")  # before the imports, since it names a missing package
    from pipeline.builds.names import identifier_of
    from pipeline.iceberg.catalog import errors_of
    from pipeline.iceberg.registration import files_of
    from pipeline.iceberg.registration import register as registered

    identifier = identifier_of("--table", name)
    if len(identifier) == 1:
        raise BadInputError(f'--table: "{name}" has no namespace; write for example sluice.{name}')
    files = files_of(directory, table)
    with opened, errors_of(opened.name):
        done = registered(files, opened, identifier)
    summary = _summary(name, table, done)
    lines = _lines(summary, explain=common.explain)
    write_output(common.form, None, summary, lines, _rows(done), lambda: _page(summary), header=_COLUMNS)


def _rows(done: "Registered") -> list[dict[str, Any]]:
    return [
        {"change": change, "rows": file.rows, "file": file.location}
        for change, files in (("added", done.added), ("removed", done.removed))
        for file in files
    ]


def _summary(name: str, table: str, done: "Registered") -> dict[str, Any]:
    parts = {"added": done.added, "removed": done.removed, "kept": done.kept}
    figures = {part: {"files": len(files), "rows": sum(file.rows for file in files)} for part, files in parts.items()}
    return {"table": name, "of": table, **figures, "changes": _rows(done)}


def _lines(summary: dict[str, Any], *, explain: bool) -> Iterator[str]:
    from pipeline.text import counted

    if explain:
        yield from (f"{row['change']}: {row['file']} ({counted(row['rows'], 'row')})" for row in summary["changes"])
    added, removed, kept = (summary[part] for part in ("added", "removed", "kept"))
    yield (
        f"{summary['table']}: {counted(added['files'], 'file')} with {counted(added['rows'], 'row')} of {summary['of']} added, "
        f"{counted(removed['files'], 'file')} removed, {counted(kept['files'], 'file')} kept"
    )


def _page(summary: dict[str, Any]) -> str:
    from pipeline.report.page import Figure
    from pipeline.report.plain_page import draw_plain

    figures = [Figure(f"{summary[part]['files']:,}", f"files {part}") for part in ("added", "removed", "kept")]
    rows = [tuple(row.values()) for row in summary["changes"]]
    about = f"Files of {summary['of']} are rows of the table without a copy."
    return draw_plain(f"Metering files in {summary['table']}", about, figures, [("Changes", _COLUMNS, rows)])
