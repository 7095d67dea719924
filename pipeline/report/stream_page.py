"""The report of a stream: what was landed, what is missing, and the divergences with the samples that prove them."""

from html import escape

from pipeline.report.page import Figure, Page, Section, draw_page, draw_table
from pipeline.report.validate_page import draw_divergence
from pipeline.stream.result import StreamResult


def draw_stream(source: str, result: StreamResult) -> str:
    """Return the report as HTML.

    Args:
        source: directory or topic that the file sets came from.
        result: the result of the command.
    """
    page = Page("File sets, validated and appended to tables", f"From {source}; results of this run.")
    percent = result.lost.percent
    page.figures = [
        Figure(f"{result.divergences:,}" if result.divergences else "exact", "divergences", "bad" if result.divergences else "good"),
        Figure(f"{result.file_sets:,}", "file sets"),
        Figure(f"{result.batches:,}", "batches"),
        Figure(f"{percent:.4g} %", "coverage of all file sets so far", "good" if result.is_whole else "bad"),
    ]
    page.sections.append(
        Section("Rows", "", [draw_table(("table", "rows"), ((name, f"{rows:,}") for name, rows in sorted(result.rows.items())))])
    )
    if result.findings:
        description = "First divergence of each group and file set, over all file sets so far."
        page.sections.append(Section("Divergences", description, [draw_divergence(one) for one in result.findings]))
    missing = [*result.lost.incomplete, *result.lost.removed]
    if missing:
        page.sections.append(Section("Missing data", "", [f"<p>{escape(line)}</p>\n" for line in missing]))
    page.foot = "Made by sluice meter stream."
    return draw_page(page)
