"""The page of a report: a heading with the verdict, a row of figures, and sections. It supports light and dark colour schemes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, Literal

from pipeline.report.style import STYLE

_NUMBER: Final = re.compile(r"(?:[-+]?\d[\d.,]*(?: ?[^\d\s]+)?|-|)")
"""Matches a number with an optional unit, and an empty cell; does not match a time of day."""

Status = Literal["good", "bad", "plain"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its label."""

    value: str
    label: str
    status: Status = "plain"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence that explains the content, and the content."""

    title: str
    description: str
    body: Sequence[str]


@dataclass(slots=True)
class Page:
    """A whole report."""

    title: str
    about: str
    figures: list[Figure] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    foot: str = ""


def draw_page(page: Page) -> str:
    """Return the page as HTML."""
    figures = "".join(_figure(figure) for figure in page.figures)
    sections = "".join(_section(section) for section in page.sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(page.title)}</h1>\n<p class="soft">{escape(page.about)}</p>\n'
        f'<div class="figures">{figures}</div>\n{sections}<footer>{escape(page.foot)}</footer>\n</main>\n</body>\n</html>\n'
    )


def _figure(figure: Figure) -> str:
    return f'<div class="figure {figure.status}"><b>{escape(figure.value)}</b><span>{escape(figure.label)}</span></div>'


def _section(section: Section) -> str:
    description = f'<p class="soft">{escape(section.description)}</p>\n' if section.description else ""
    return f"<section>\n<h2>{escape(section.title)}</h2>\n{description}{''.join(section.body)}</section>\n"


def draw_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML; columns of numbers are right-aligned."""
    cells = [[str(cell) for cell in row] for row in rows]
    number = [bool(cells) and all(_NUMBER.fullmatch(row[at]) for row in cells) for at in range(len(header))]
    names = "".join(f"<th{_class(is_number)}>{escape(name)}</th>" for name, is_number in zip(header, number, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{_class(is_number)}>{escape(cell)}</td>" for cell, is_number in zip(row, number, strict=True)) + "</tr>\n"
        for row in cells
    )
    return f'<div class="scroll"><table><thead><tr>{names}</tr></thead><tbody>\n{body}</tbody></table></div>\n'


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
