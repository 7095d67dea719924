"""`sluice meter verify-manifests`."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.execution.exit_codes import INCOMPLETE, clear_errors
from pipeline.commands.execution.options import SPARK, Common, common_options
from pipeline.storage.paths import path_of

if TYPE_CHECKING:
    from metering_format.manifest import Manifest
    from pipeline.manifest import RunKey


@click.command("verify-manifests")
@click.argument("directory")
@clear_errors
@common_options("local", "spark", explain="Print the checked files and bytes of each file set.")
def verify_manifests(directory: str, common: Common) -> None:
    """Verify presence, length and SHA-256 of each file against its manifest, and each manifest against its predecessor."""
    from pipeline.chain import broken_links
    from pipeline.commands.execution.output import write_output
    from pipeline.manifest import by_run
    from pipeline.text import counted

    manifests, removed, problems = _compared(directory, common)
    problems += [line for _, line in broken_links(by_run(manifests).values(), removed)]
    files = sum(len(manifest.files) for manifest in manifests)
    lines = [*problems, f"{counted(len(manifests), 'manifest')}, {counted(files, 'file')}, {counted(len(problems), 'problem')}"]
    sets = [_row(manifest) for manifest in manifests]
    summary = {"manifests": len(manifests), "files": files, "problems": problems, "file_sets": sets}
    if common.explain:
        lines += _explained(sets)
    # CSV has its header even without problems
    write_output(
        common.form, None, summary, lines, [{"problem": problem} for problem in problems], lambda: _page(summary), header=("problem",)
    )
    if problems:
        sys.exit(INCOMPLETE)


def _compared(directory: str, common: Common) -> "tuple[list[Manifest], dict[RunKey, int], list[str]]":
    """Return the manifests, the runs of which retention removed file sets, and a line for each file that differs."""
    if common.engine == SPARK:
        from pipeline.spark.validation.manifests import compared

        return compared(directory, common.session)
    from pipeline.manifest import find_manifests, problems_in
    from pipeline.removed import removed_runs

    place = path_of(directory)
    manifests = find_manifests(place)
    return manifests, removed_runs(place), problems_in(place, manifests)


def _row(manifest: "Manifest") -> dict[str, Any]:
    return {
        "file_set": manifest.file_set,
        "proxy_id": manifest.proxy_id,
        "after": manifest.previous,
        "first_seq": manifest.first_seq,
        "last_seq": manifest.last_seq,
        "files": len(manifest.files),
        "bytes": sum(entry.bytes for entry in manifest.files),
    }


def _explained(sets: Sequence[dict[str, Any]]) -> Iterator[str]:
    from pipeline.text import table_lines

    yield ""
    yield from table_lines(_HEADER, _cells(sets))


_HEADER = ("file set", "proxy", "comes after", "decisions", "files", "bytes")


def _cells(sets: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            row["file_set"],
            row["proxy_id"],
            row["after"] or "-",
            _numbers(row["first_seq"], row["last_seq"]),
            row["files"],
            f"{row['bytes']:,}",
        )
        for row in sets
    ]


def _numbers(first: int, last: int) -> str:
    return f"{first:,} to {last:,}" if last >= first else "none"


def _page(summary: dict[str, Any]) -> str:
    from pipeline.report.page import Figure
    from pipeline.report.plain_page import Table, draw_plain

    problems = [(problem,) for problem in summary["problems"]]
    figures = [
        Figure(f"{summary['manifests']:,}", "manifests"),
        Figure(f"{summary['files']:,}", "verified files"),
        Figure(f"{len(problems):,}", "problems", "bad" if problems else "good"),
    ]
    tables: list[Table] = [("Problems", ("what",), problems), ("File sets", _HEADER, _cells(summary["file_sets"]))]
    return draw_plain(
        "Files and their manifests", "Checks presence, length and SHA-256 of every file, and that no file set is missing.", figures, tables
    )
