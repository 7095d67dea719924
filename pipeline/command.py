"""`sluice meter ...`. Exit codes: 0 clean, 1 violations found, 2 bad input or usage, 3 incomplete data."""

import json
import sys
from pathlib import Path
from typing import Final

import click

from pipeline.commands.neighbours import neighbours
from pipeline.commands.outcome import INCOMPLETE, VIOLATIONS, clear_errors
from pipeline.commands.recommend import recommend
from pipeline.commands.rollup import rollup
from pipeline.commands.stream import stream
from pipeline.commands.whatif import whatif
from pipeline.errors import BadInputError

DIRECTORY: Final = click.Path(path_type=Path)


@click.group(no_args_is_help=False)
def meter() -> None:
    """Read what `sluice run --metering DIR` wrote: usage, proof of enforcement, what-if, recommendations."""


@meter.command()
@click.option("--in", "source", required=True, metavar="DIR", help="The metering directory; with Spark also hdfs://..., s3a://...")
@click.option("--out", type=DIRECTORY, metavar="DIR", help="Write verdict.json and report.html here too.")
@click.option("--quotas", type=DIRECTORY, metavar="FILE", help="The quotas.toml that was in force: are groups and bounds its?")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True, help="In this process, or with Spark.")
@click.option("--cross-check", is_flag=True, help="Work every wait out once more, in SQL (needs --engine spark, and nothing missing).")
@click.option("--master", help="Where Spark runs; all cores of this machine unless spark-submit says otherwise.")
@click.option("--format", "form", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@click.option("--max-violations", type=click.IntRange(0), default=50, show_default=True, help="Groups to show.")
@click.option("--explain", is_flag=True, help="Show the samples that prove each divergence.")
@clear_errors
def validate(
    source: str,
    out: Path | None,
    quotas: Path | None,
    engine: str,
    master: str | None,
    form: str,
    max_violations: int,
    *,
    cross_check: bool,
    explain: bool,
) -> None:
    """Work every decision out again, bit for bit, and name the first divergence of each group."""
    from pipeline.files import write_whole
    from pipeline.report.validate_page import draw_verdict
    from pipeline.validation.local import validate as validate_here
    from pipeline.validation.text import lines_of

    if "://" in source and (engine != "spark" or quotas is not None):
        raise BadInputError(f"--in {source}: only Spark reads other file systems, and --quotas needs local files; add --engine spark")
    if cross_check and (engine != "spark" or "://" in source):
        raise BadInputError("--cross-check: SQL needs Spark and local files; add --engine spark")
    if engine == "spark":
        from pipeline.spark.validate import validate as validate_on_spark

        verdict = validate_on_spark(source, master, in_sql=cross_check)
    else:
        verdict = validate_here(Path(source))
    if quotas is not None:
        from pipeline.validation.by_file import check_by_file
        from pipeline.validation.local import checked_runs

        verdict.add(check_by_file(checked_runs(Path(source)), quotas))
    told = verdict.as_dict(max_violations)
    if out is not None:
        write_whole(out / "verdict.json", json.dumps(told, indent=1) + "\n")
        write_whole(out / "report.html", draw_verdict(verdict, max_violations))
    if form == "json":
        click.echo(json.dumps(told, indent=1))
    elif form == "html":
        click.echo(draw_verdict(verdict, max_violations), nl=False)
    else:
        for line in lines_of(verdict, max_violations, explain=explain):
            click.echo(line)
    if verdict.violations or (verdict.cross_check is not None and verdict.cross_check.differences):
        sys.exit(VIOLATIONS)
    if verdict.incomplete:
        sys.exit(INCOMPLETE)


@meter.command("verify-manifests")
@click.argument("directory", type=DIRECTORY)
@clear_errors
def verify_manifests(directory: Path) -> None:
    """Compare every file with what its manifest says: presence, length, SHA-256."""
    from pipeline.manifest import find_manifests, problems_of

    manifests = find_manifests(directory)
    problems = [problem for manifest in manifests for problem in problems_of(directory, manifest)]
    for problem in problems:
        click.echo(problem)
    files = sum(len(manifest.files) for manifest in manifests)
    click.echo(f"{len(manifests)} manifests, {files} files, {len(problems)} problems")
    if problems:
        sys.exit(INCOMPLETE)


@meter.command()
@click.argument("file", type=DIRECTORY)
@clear_errors
def inspect(file: Path) -> None:
    """Say what one metering file or manifest holds."""
    from pipeline.inspection import lines_of

    for line in lines_of(file):
        click.echo(line)


meter.add_command(rollup)
meter.add_command(whatif)
meter.add_command(recommend)
meter.add_command(neighbours)
meter.add_command(stream)
