"""`sluice meter neighbours`."""

from pathlib import Path

import click

from pipeline.commands.outcome import clear_errors


@click.command()
@click.option("--in", "source", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The metering directory.")
@click.option("--share", type=click.FloatRange(1, 100), default=50, show_default=True, help="Percent of a broker's load that is loud.")
@click.option("--window", "window_s", type=click.IntRange(1, 3_600), default=10, show_default=True, help="Seconds that are compared.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write report.html and summary.json here.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv", "html"]), default="table", show_default=True)
@clear_errors
def neighbours(source: Path, share: float, window_s: int, out: Path | None, form: str) -> None:
    """Name clients whose load makes others slower, or makes them wait."""
    from pipeline.commands.telling import put_out
    from pipeline.neighbours.load import read_load
    from pipeline.neighbours.pairs import as_rows, pairs_of
    from pipeline.neighbours.text import lines_of
    from pipeline.report.neighbours_page import draw_neighbours
    from pipeline.validation.local import checked_runs

    load = read_load(source, checked_runs(source).values(), window_s * 1_000)
    pairs = pairs_of(load, share)
    summary = {"share_percent": share, "window_s": window_s, "load": load.measured, "pairs": as_rows(pairs)}
    put_out(form, out, summary, lines_of(pairs, load, share), as_rows(pairs), lambda: draw_neighbours(pairs, load))
