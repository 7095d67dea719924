"""`sluice meter repair`. The proxy's own code does the repair."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from metering_format.places import MANIFESTS, SEGMENTS
from pipeline.commands.execution.exit_codes import INCOMPLETE, clear_errors
from pipeline.commands.execution.options import Common, common_options
from pipeline.errors import BadInputError
from pipeline.text import counted
from sluice.local_path import LOCAL_PATH

if TYPE_CHECKING:
    from metering_format.manifest import Manifest


class Repaired(Protocol):
    """The result: manifests that were written, empty segments, removed temporary files, proxies that still run, failures."""

    manifests: list[Path]
    empty: int
    temporaries: int
    running: list[str]
    problems: list[str]


def repair_command(repair: Callable[[Path], Repaired]) -> click.Command:
    """Return the command.

    Args:
        repair: converts the open segments of killed proxies below a directory to files.
    """

    @click.command("repair")
    @click.argument("directory", type=LOCAL_PATH)
    @clear_errors
    @common_options("local", because="repair runs in this process", explain="Print the number of recorded and lost rows of each file set.")
    def command(directory: Path, common: Common) -> None:
        """Convert the open segments of killed proxies to Parquet files with a manifest. Segments of running proxies are not changed."""
        if not any((directory / name).is_dir() for name in (SEGMENTS, MANIFESTS)):
            raise BadInputError(f"{directory}: not a metering directory; name a directory that `sluice run --metering` writes")
        _report(directory, repair(directory), common)

    return command


def _report(directory: Path, done: Repaired, common: Common) -> None:
    from pipeline.commands.execution.output import write_output
    from pipeline.manifest import read_manifest

    made = [_row(path.relative_to(directory), read_manifest(path)) for path in done.manifests]
    summary = {
        "made_whole": made,
        "running": done.running,
        "empty_segments": done.empty,
        "temporary_files": done.temporaries,
        "problems": done.problems,
    }
    write_output(common.form, None, summary, _lines(summary, explain=common.explain), made, lambda: _page(summary), header=_COLUMNS)
    for problem in done.problems:
        click.echo(f"sluice: {problem}", err=True)
    if done.problems:
        sys.exit(INCOMPLETE)


_COLUMNS = ("manifest", "first_seq", "last_seq", "dropped_decisions", "dropped_usage_rows")


def _row(path: Path, manifest: "Manifest") -> dict[str, Any]:
    return {
        "manifest": str(path),
        "first_seq": manifest.first_seq,
        "last_seq": manifest.last_seq,
        "dropped_decisions": manifest.dropped_decisions,
        "dropped_usage_rows": manifest.dropped_usage_rows,
    }


def _lines(summary: dict[str, Any], *, explain: bool) -> Iterator[str]:
    for row in summary["made_whole"]:
        yield f"repaired: {row['manifest']}"
        if explain:
            taken = row["last_seq"] - row["first_seq"] + 1
            yield f"    {counted(taken, 'decision')}, of which {row['dropped_decisions']:,} were not written"
            yield f"    at most {counted(row['dropped_usage_rows'], 'usage row')} of its last second lost"
    for proxy_id in summary["running"]:
        yield f"{proxy_id} still runs; its segments are not changed"
    yield (
        f"{counted(len(summary['made_whole']), 'file set')} repaired, {counted(summary['empty_segments'], 'empty segment')} and "
        f"{counted(summary['temporary_files'], 'temporary file')} removed, {counted(len(summary['problems']), 'problem')}"
    )


def _page(summary: dict[str, Any]) -> str:
    from pipeline.report.page import Figure
    from pipeline.report.plain_page import Table, draw_plain

    problems = summary["problems"]
    figures = [
        Figure(f"{len(summary['made_whole']):,}", "repaired file sets"),
        Figure(f"{summary['empty_segments']:,}", "empty segments removed"),
        Figure(f"{summary['temporary_files']:,}", "temporary files removed"),
        Figure(f"{len(problems):,}", "problems", "bad" if problems else "good"),
    ]
    rows = [tuple(row.values()) for row in summary["made_whole"]]
    header = ("manifest", "first decision", "last", "decisions not written", "usage rows lost, at most")
    tables: list[Table] = [
        ("Repaired file sets", header, rows),
        ("Problems", ("what",), [(problem,) for problem in problems]),
        ("Proxies that still run; their segments are not changed", ("proxy",), [(name,) for name in summary["running"]]),
    ]
    return draw_plain(
        "Repair of metering files", "Open segments of killed proxies are converted to Parquet files with a manifest.", figures, tables
    )
