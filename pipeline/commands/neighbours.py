"""`sluice meter neighbours`."""

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import opener, source_option
from pipeline.commands.execution.options import Common, common_options
from pipeline.commands.execution.outputs import OUTPUT_OF_ENGINE
from pipeline.storage.paths import AnyPath


@click.command()
@source_option
@click.option(
    "--share",
    type=click.FloatRange(1, 100),
    default=50,
    show_default=True,
    help="Minimum share of a broker's load, in percent, for a client to be reported as a noisy neighbour.",
)
@click.option(
    "--window",
    "window_s",
    type=click.IntRange(1, 3_600),
    default=10,
    show_default=True,
    help="Length of the compared time windows, in seconds.",
)
@click.option("--out", type=OUTPUT_OF_ENGINE, metavar="DIR", help="Write report.html and summary.json to this directory.")
@clear_errors
@common_options("local", "spark", explain="Print the figures behind each pair.")
def neighbours(source: AnyPath | str, share: float, window_s: int, out: AnyPath | str | None, common: Common) -> None:
    """Find clients whose load makes requests of other clients slower or throttled, and print pairs of neighbour and victim."""
    from pipeline.commands.execution.executor import executor
    from pipeline.commands.execution.output import write_output
    from pipeline.neighbours.load import JOB, load_of, plan_load
    from pipeline.neighbours.pairs import Pair, as_rows, pairs_of
    from pipeline.neighbours.text import lines_of
    from pipeline.report.neighbours_page import draw_neighbours

    with opener(common.engine, common.session, (("--in", source), ("--out", out))) as opened:
        place = None if out is None else opened(out)
        work = plan_load(opened(source), window_s * 1_000)
        with executor(common) as run_all:
            load = load_of(run_all(JOB, work), window_s * 1_000)
        pairs = pairs_of(load, share)
        summary = {"share_percent": share, "window_s": window_s, "load": load.measured, "pairs": as_rows(pairs)}
        lines, header = lines_of(pairs, load, share, explain=common.explain), (*Pair.__struct_fields__, "says")
        write_output(common.form, place, summary, lines, as_rows(pairs), lambda: draw_neighbours(pairs, load), header=header)
