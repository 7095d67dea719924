"""`sluice meter validate`."""

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pipeline.commands.execution.exit_codes import INCOMPLETE, VIOLATIONS, clear_errors
from pipeline.commands.execution.inputs import INPUT_OF_ENGINE, opener
from pipeline.commands.execution.options import SPARK, Common, common_options
from pipeline.commands.execution.outputs import OUTPUT_OF_ENGINE, SPARK_OUTPUT
from pipeline.files import check_new
from pipeline.storage.paths import AnyPath, is_of_hadoop, path_of
from sluice.object_store import is_url

if TYPE_CHECKING:
    from pipeline.commands.execution.inputs import Open
    from pipeline.manifest import RunKey
    from pipeline.replay.findings import Findings
    from pipeline.validation.against_broker import Compared
    from pipeline.validation.verdict import Verdict


@click.command()
@click.option("--in", "source", required=True, metavar="DIR", help="Metering directory to read: a path, or a URL such as s3://BUCKET/DIR.")
@click.option(
    "--out",
    type=OUTPUT_OF_ENGINE,
    metavar="DIR",
    help="Verify each file against its manifest, then also write verdict.json and report.html to this directory.",
)
@click.option(
    "--quotas",
    type=INPUT_OF_ENGINE,
    metavar="FILE",
    help="Also check groups and bounds against this quota file, which was in effect.",
)
@click.option(
    "--against-broker",
    is_flag=True,
    help="Also compare throttle times of brokers, which enforce the same quotas, with those of Sluice, by group.",
)
@click.option("--max-violations", type=click.IntRange(0), default=50, show_default=True, help="Maximum number of groups to print.")
@click.option(
    "--violations",
    type=SPARK_OUTPUT,
    metavar="DIR",
    help="Verify each file against its manifest, then also write the first divergence of every group to this new directory, as Parquet.",
)
@clear_errors
@common_options("local", "spark", explain="Print the samples that prove each divergence.")
def validate(
    source: str,
    out: AnyPath | str | None,
    quotas: AnyPath | str | None,
    max_violations: int,
    violations: AnyPath | str | None,
    common: Common,
    *,
    against_broker: bool,
) -> None:
    """Recompute each recorded throttle decision exactly, and print the first divergence of each quota group."""
    is_there = is_url(source)
    every_byte = out is not None or violations is not None or common.form == "html"
    is_of_spark = is_there and common.engine == SPARK
    reads_here = quotas is not None or against_broker
    if isinstance(violations, str) and common.engine != SPARK and not is_of_hadoop(violations):
        violations = path_of(violations)
    given = (("--quotas", quotas), ("--in", source if is_of_spark and reads_here else None), ("--violations", violations), ("--out", out))
    with opener(common.engine, common.session, given) as opened:
        if violations is not None:
            check_new("--violations", opened(violations))
        place = None if out is None else opened(out)
        by_file = _check_by_file(_directory(source, opened, common), opened(quotas), common) if quotas is not None else {}
        compared = _compare(_directory(source, opened, common), common) if against_broker else None
        asked = _Asked(every_byte, max_violations, violations, by_file)
        verdict = _judge(source, common, asked)
        if compared is not None:
            verdict.against_broker, lost = compared
            verdict.incomplete += lost
        if not verdict.holds and not every_byte and not is_of_spark:
            _check_undamaged(path_of(source), verdict)
        _report(verdict, place, common, max_violations, violations)
    if not verdict.holds:
        sys.exit(VIOLATIONS)
    if verdict.incomplete:
        sys.exit(INCOMPLETE)


class _Asked(NamedTuple):
    """What is judged, and where the table of divergences goes: on Spark a URL is a text, for the local engine a path of a store."""

    every_byte: bool
    max_violations: int
    table: AnyPath | str | None
    by_file: "dict[RunKey, Findings]"


def _judge(source: str, common: Common, asked: _Asked) -> "Verdict":
    if common.engine == SPARK:
        from pipeline.spark.validation.validate import Wanted
        from pipeline.spark.validation.validate import validate as validate_on_spark
        from pipeline.spark.written import write_new

        wanted = Wanted(asked.max_violations, more=asked.by_file, every_byte=asked.every_byte)
        if asked.table is not None:
            assert isinstance(asked.table, (Path, str))
            wanted = replace(wanted, use=functools.partial(write_new, "--violations", asked.table))
        return validate_on_spark(source, common.session, wanted)
    from pipeline.report.divergences_table import write_divergences
    from pipeline.validation.local import validate as validate_here

    verdict = validate_here(path_of(source), every_byte=asked.every_byte, more=asked.by_file)
    if asked.table is not None:
        assert not isinstance(asked.table, str)
        write_divergences(asked.table, verdict)
    return verdict


def _directory(source: str, opened: "Open", common: Common) -> AnyPath:
    return opened(source) if is_url(source) and common.engine == SPARK else path_of(source)


def _check_by_file(source: AnyPath, quotas: AnyPath, common: Common) -> "dict[RunKey, Findings]":
    from pipeline.commands.execution.executor import executor
    from pipeline.file_sets import checked_runs
    from pipeline.validation.by_file import check_by_file

    with executor(common, by_hadoop=True) as run_all:
        return check_by_file(run_all, source, checked_runs(source), quotas)


def _compare(source: AnyPath, common: Common) -> "tuple[list[Compared], list[str]]":
    """Compare with brokers' throttle times; return that, and what was lost of it."""
    from pipeline.commands.execution.executor import executor
    from pipeline.file_sets import checked_runs
    from pipeline.validation.against_broker import compare, dropped

    runs = checked_runs(source)
    lost = dropped(runs)
    with executor(common, by_hadoop=True) as run_all:
        found = compare(run_all, source, runs)
    return found, [f"{lost} answers of brokers were compared and could not be written"] if lost else []


def _check_undamaged(source: AnyPath, verdict: "Verdict") -> None:
    """Compare the files of each run that diverges with their manifests. All its files are checked, since samples affect later ones."""
    from pipeline.manifest import check_undamaged, find_manifests

    manifests = find_manifests(source)
    blamed = [manifest for manifest in manifests if verdict.concerns((manifest.proxy_id, manifest.run_id))]
    check_undamaged(source, blamed)


def _report(verdict: "Verdict", out: AnyPath | None, common: Common, max_violations: int, table: AnyPath | str | None) -> None:
    from pipeline.commands.execution.output import csv_of
    from pipeline.files import write_whole
    from pipeline.report.validate_page import draw_verdict
    from pipeline.validation.divergence import COLUMNS
    from pipeline.validation.text import lines_of

    encoded = json.dumps(verdict.as_dict(max_violations), indent=1)
    if out is not None:
        write_whole(out / "verdict.json", encoded + "\n")
        write_whole(out / "report.html", draw_verdict(verdict, max_violations))
    if common.form == "json":
        click.echo(encoded)
    elif common.form == "csv":
        click.echo(csv_of([one.as_row() for one in verdict.divergences(max_violations)], COLUMNS), nl=False)
    elif common.form == "html":
        click.echo(draw_verdict(verdict, max_violations), nl=False)
    else:
        for line in lines_of(verdict, max_violations, explain=common.explain, table=table):
            click.echo(line)
