"""`sluice meter whatif`."""

from pathlib import Path

import click

from pipeline.commands.outcome import clear_errors
from pipeline.commands.spark_options import spark_options


@click.command()
@click.option("--in", "source", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The metering directory.")
@click.option(
    "--quotas",
    "files",
    type=click.Path(path_type=Path),
    required=True,
    multiple=True,
    metavar="FILE",
    help="A quota file; several compare",
)
@click.option("--mode", type=click.Choice(["open", "regroup", "closed"]), default="open", show_default=True, help="How clients behave.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write report.html and summary.json here.")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True, help="In this process, or with Spark.")
@spark_options
@click.option("--format", "form", type=click.Choice(["table", "json", "csv", "html"]), default="table", show_default=True)
@clear_errors
def whatif(
    source: Path, files: tuple[Path, ...], mode: str, out: Path | None, engine: str, master: str | None, form: str, *, verbose: bool
) -> None:
    """Say what other quotas would have done with the decisions that are recorded."""
    import msgspec

    from pipeline.commands.tasks import do_on
    from pipeline.commands.telling import put_out
    from pipeline.quotas.file import read_quota_file
    from pipeline.report.whatif_page import buckets_of, draw_whatif
    from pipeline.whatif.comparison import as_dict, changes_of, lines_of
    from pipeline.whatif.work import outcomes_of, plan_work

    quotas = [read_quota_file(file) for file in files]
    names = _names(files)
    done = do_on(engine, master, plan_work(source, quotas, mode), verbose=verbose)
    found = dict(zip(names, outcomes_of(done, len(quotas)), strict=True))
    changes = [change for name, outcomes in found.items() for change in changes_of(name, outcomes, mode)]
    summary = as_dict(changes, mode)

    def page() -> str:
        return draw_whatif(changes, mode, {name: buckets_of(outcomes) for name, outcomes in found.items()})

    put_out(form, out, summary, lines_of(changes, mode), [msgspec.structs.asdict(change) for change in changes], page)


def _names(files: tuple[Path, ...]) -> list[str]:
    short = [file.name for file in files]
    return short if len(set(short)) == len(short) else [str(file) for file in files]
