"""`sluice meter recommend`."""

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import opener, source_option
from pipeline.commands.execution.options import Common, common_options
from pipeline.commands.execution.outputs import OUTPUT_OF_ENGINE
from pipeline.errors import IncompleteError
from pipeline.storage.paths import AnyPath


@click.command()
@source_option
@click.option(
    "--percentile",
    type=click.FloatRange(1, 100),
    default=99,
    show_default=True,
    help="Percentile of the measured rates that a bound is based on.",
)
@click.option("--headroom", type=click.FloatRange(0.1, 100), default=1.3, show_default=True, help="Factor to multiply the percentile by.")
@click.option("--out", type=OUTPUT_OF_ENGINE, metavar="FILE", help="Write the proposed quotas to this quota file.")
@click.option("--report", type=OUTPUT_OF_ENGINE, metavar="DIR", help="Write report.html and summary.json to this directory.")
@clear_errors
@common_options("local", "spark", explain="Print how each bound is computed.")
def recommend(
    source: AnyPath | str, percentile: float, headroom: float, out: AnyPath | str | None, report: AnyPath | str | None, common: Common
) -> None:
    """Propose quotas from recorded usage, and print their expected effect on the same recording."""
    from pipeline.commands.execution.executor import executor
    from pipeline.commands.execution.output import write_output
    from pipeline.files import write_whole
    from pipeline.quotas.file import quota_file_of
    from pipeline.recommend.proposal import as_rows, propose
    from pipeline.recommend.quota_file import quota_text
    from pipeline.recommend.text import lines_of
    from pipeline.recommend.work import JOB, demands_of, plan_demand
    from pipeline.report.whatif_page import buckets_of, draw_whatif
    from pipeline.whatif.comparison import as_dict, changes_of
    from pipeline.whatif.work import JOB as WHATIF
    from pipeline.whatif.work import outcomes_of, plan_work

    given = (("--in", source), ("--out", out), ("--report", report))
    with opener(common.engine, common.session, given) as opened, executor(common) as run_all:
        directory, file, folder = opened(source), *(None if place is None else opened(place) for place in (out, report))
        asked = run_all(JOB, plan_demand(directory))
        proposals, left_out = propose(demands_of(asked), percentile, headroom)
        if not proposals:
            raise IncompleteError(f"{source}: contains no group that a quota file can name; meter at level packed")
        text = quota_text(proposals, f"sluice meter recommend --percentile {percentile:g} --headroom {headroom:g}")
        played = run_all(WHATIF, plan_work(directory, [quota_file_of(text, "proposal")], "regroup"))
        [outcomes] = outcomes_of(played, 1)
        changes = changes_of("proposal", outcomes, "regroup")
        if file is not None:
            write_whole(file, text)
        summary = {"percentile": percentile, "headroom": headroom, "proposals": as_rows(proposals), "expected": as_dict(changes, "regroup")}

        def page() -> str:
            buckets = {"proposal": buckets_of(outcomes)}
            return draw_whatif(changes, "regroup", buckets, title="Recommended quotas and their expected effect")

        lines = lines_of(proposals, changes, left_out, percentile, explain=common.explain)
        write_output(common.form, folder, summary, lines, as_rows(proposals), page)
