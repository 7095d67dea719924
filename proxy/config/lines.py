"""Line numbers of the keys in a TOML file, for messages. The file was parsed before, so the text is valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_KEY_PART: Final = re.compile(r'\s*(?:([A-Za-z0-9_-]+)|"((?:[^"\\\n]|\\.)*)"|\'([^\'\n]*)\')\s*')
_TOKEN: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[{]|[\]}]|\n|[^"\'#\[\]{}\n]+', re.DOTALL
)
_BLANK: Final = re.compile(r"(?:\s+|#[^\n]*)*")


def key_lines(text: str) -> dict[str, int]:
    """Return the line, from 1, of each table and each key outside of inline tables.

    Names are those of problems: `listener[2].address` for a key of the second `[[listener]]`.
    """
    lines: dict[str, int] = {}
    line, counted = 1, 0
    for name, at in _keys(text):
        line += text.count("\n", counted, at)
        counted = at
        lines.setdefault(name, line)
    return lines


def nearest_line(lines: dict[str, int], key: str) -> int | None:
    """Return the line of a key, or of the nearest table around it that the file has; None: the file has none."""
    while key:
        if key in lines:
            return lines[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return None


def _keys(text: str) -> Iterator[tuple[str, int]]:
    """Yield each name with its position."""
    counts: dict[str, int] = {}
    table, at = "", 0
    while True:
        at = _end(_BLANK, text, at)
        if at >= len(text):
            return
        begin, opening = at, 2 if text.startswith("[[", at) else text.startswith("[", at)
        parts, at = _parts(text, at + opening)
        if opening == 2:
            table = _placed(parts, counts, last=False)
            counts[table] = counts.get(table, 0) + 1
            table = f"{table}[{counts[table]}]"
            yield table, begin
            at += 2
        elif opening:
            table = _placed(parts, counts, last=True)
            yield table, begin
            at += 1
        else:
            yield ".".join(filter(None, (table, *parts))), begin
            at = _after_value(text, at + 1)


def _placed(parts: list[str], counts: dict[str, int], *, last: bool) -> str:
    """Return a table's name; a part that is a list of tables gets the number of its newest table."""
    name = ""
    for position, part in enumerate(parts, 1):
        name = f"{name}.{part}" if name else part
        if name in counts and (last or position < len(parts)):
            name = f"{name}[{counts[name]}]"
    return name


def _parts(text: str, at: int) -> tuple[list[str], int]:
    """Return the parts of a dotted key, and the position after it."""
    parts: list[str] = []
    while (match := _KEY_PART.match(text, at)) is not None:
        parts.append(next(group for group in match.groups() if group is not None))
        at = match.end()
        if not text.startswith(".", at):
            break
        at += 1
    return parts, at


def _after_value(text: str, at: int) -> int:
    """Return the position after the value that begins at `at`."""
    depth = 0
    while (match := _TOKEN.match(text, at)) is not None:
        part = match.group()
        if part == "\n" and not depth:
            break
        depth += (part in ("[", "{")) - (part in ("]", "}"))
        at = match.end()
    return at


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()
