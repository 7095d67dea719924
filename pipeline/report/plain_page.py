"""A page of tables without charts, for commands that check files."""

from collections.abc import Iterable, Sequence

from pipeline.report.page import Figure, Page, Section, draw_page, draw_table

Table = tuple[str, Sequence[str], Sequence[Sequence[object]]]
"""Heading, columns and rows."""


def draw_plain(title: str, about: str, figures: Sequence[Figure], tables: Iterable[Table]) -> str:
    """Return the page as HTML.

    Args:
        title: heading of the page.
        about: sentence below the heading.
        figures: numbers with labels.
        tables: tables without rows are left out.
    """
    page = Page(title, about, list(figures))
    page.sections = [Section(heading, "", [draw_table(header, rows)]) for heading, header, rows in tables if rows]
    page.foot = "Made by sluice meter. All times are UTC."
    return draw_page(page)
