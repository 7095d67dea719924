"""Writes the result of a command as a table, JSON, CSV or a page."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from pipeline.files import write_whole
from pipeline.storage.paths import AnyPath

Page = Callable[[], str]
"""Draws the report; called only when the page is printed or written."""


def write_output(
    form: str,
    out: AnyPath | None,
    summary: Mapping[str, Any],
    lines: Iterable[str],
    rows: Sequence[Mapping[str, Any]],
    page: Page,
    *,
    header: Sequence[str] | None = None,
) -> None:
    """Print one format on stdout. With `out`, also write report.html and summary.json there atomically.

    Args:
        form: format of stdout.
        out: output directory, or None.
        summary: content of JSON.
        lines: lines of the table.
        rows: rows of CSV.
        page: draws the report.
        header: columns of CSV; None: the columns of the first row.
    """
    text = json.dumps(summary, indent=1, default=str) + "\n"
    drawn = page() if out is not None or form == "html" else ""
    if out is not None:
        write_whole(out / "summary.json", text)
        write_whole(out / "report.html", drawn)
    if form == "json":
        click.echo(text, nl=False)
    elif form == "csv":
        click.echo(csv_of(rows, header), nl=False)
    elif form == "html":
        click.echo(drawn, nl=False)
    else:
        for line in lines:
            click.echo(line)


def csv_of(rows: Sequence[Mapping[str, Any]], header: Sequence[str] | None = None) -> str:
    """Return rows as CSV with a header.

    Args:
        rows: the rows.
        header: columns to include; None: the columns of the first row.
    """
    sheet = io.StringIO()
    columns = list(rows[0]) if header is None and rows else list(header or ())
    writer = csv.DictWriter(sheet, fieldnames=columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sheet.getvalue()
