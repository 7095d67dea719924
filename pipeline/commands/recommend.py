"""`sluice meter recommend`."""

from pathlib import Path

import click

from pipeline.commands.outcome import clear_errors
from pipeline.errors import IncompleteError


@click.command()
@click.option("--in", "source", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The metering directory.")
@click.option(
    "--percentile", type=click.FloatRange(1, 100), default=99, show_default=True, help="Of the rates that a bound is compared with."
)
@click.option("--headroom", type=click.FloatRange(0.1, 100), default=1.3, show_default=True, help="Times this.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write a quota file that the proxy takes.")
@click.option("--report", type=click.Path(path_type=Path), metavar="DIR", help="Write report.html and summary.json here.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv", "html"]), default="table", show_default=True)
@clear_errors
def recommend(source: Path, percentile: float, headroom: float, out: Path | None, report: Path | None, form: str) -> None:
    """Propose quotas that fit what clients did, and say what they would have done."""
    from pipeline.commands.telling import put_out
    from pipeline.files import write_whole
    from pipeline.quotas.file import quota_file_of
    from pipeline.quotas.writing import quota_text
    from pipeline.recommend.demand import Demand, demand_of
    from pipeline.recommend.proposal import as_rows, propose
    from pipeline.recommend.text import lines_of
    from pipeline.report.whatif_page import buckets_of, draw_whatif
    from pipeline.validation.local import checked_runs
    from pipeline.whatif.comparison import as_dict, changes_of
    from pipeline.whatif.groups import Group
    from pipeline.whatif.work import do_all, outcomes_of, plan_work

    demands: dict[Group, Demand] = {}
    for stems in checked_runs(source).values():
        demand_of(stems, demands)
    proposals, left_out = propose(demands, percentile, headroom)
    if not proposals:
        raise IncompleteError(f"{source}: no group in it that a quota file can name, so nothing to recommend; meter at level packed")
    text = quota_text(proposals, f"sluice meter recommend --percentile {percentile:g} --headroom {headroom:g}")
    [outcomes] = outcomes_of(do_all(plan_work(source, [quota_file_of(text, "proposal")], "regroup")), 1)
    expected = changes_of("proposal", outcomes, "regroup")
    if out is not None:
        write_whole(out, text)
    summary = {"percentile": percentile, "headroom": headroom, "proposals": as_rows(proposals), "expected": as_dict(expected, "regroup")}

    def page() -> str:
        buckets = {"proposal": buckets_of(outcomes)}
        return draw_whatif(expected, "regroup", buckets, title="Quotas that would fit, and what they would have done")

    put_out(form, report, summary, lines_of(proposals, expected, left_out, percentile), as_rows(proposals), page)
