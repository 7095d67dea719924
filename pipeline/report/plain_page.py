"""A page of one table: for commands that look at files and draw nothing."""

from collections.abc import Iterable, Sequence

from pipeline.report.page import Figure, Page, Section, draw_page, draw_table

Table = tuple[str, Sequence[str], Sequence[Sequence[object]]]
"""Heading, columns and rows."""


def draw_plain(title: str, about: str, figures: Sequence[Figure], tables: Iterable[Table]) -> str:
    """Return the page as HTML.

    Args:
        tables: one without rows is left out.
    """
    page = Page(title, about, list(figures))
    page.sections = [Section(heading, "", [draw_table(header, rows)]) for heading, header, rows in tables if rows]
    page.foot = "Made by sluice meter. All times are UTC."
    return draw_page(page)
