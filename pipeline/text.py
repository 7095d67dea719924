"""Formats figures and plain tables for terminals."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_BYTES: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def human_bytes(number: float) -> str:
    """Return a number of bytes with three significant digits and a decimal unit."""
    value = float(number)
    for unit in _BYTES:
        if abs(value) < 999.5 or unit == _BYTES[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1_000
    raise AssertionError


def human_ms(milliseconds: float) -> str:
    """Return a duration in ms as text, in ms, seconds, minutes or hours."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7_200 else f"{seconds / 3_600:.3g} h"


def human_rate(quota_type: str, rate: float | None) -> str:
    """Return a rate of a quota type: bytes, percent of a thread, connections or partitions, per second."""
    if rate is None:
        return "-"
    if quota_type in ("Produce", "Fetch"):
        return f"{human_bytes(rate)}/s"
    number = f"{rate:.3g}" if rate < 999.5 else f"{rate:,.0f}"
    return f"{number} %" if quota_type == "Request" else f"{number}/s"


def counted(number: int, thing: str) -> str:
    """Return a number with its noun: "1 hour", "1,234 hours"."""
    return f"{number:,} {thing}" + ("" if number == 1 else "es" if thing.endswith("ch") else "s")


def utc_time(wall_ms: int) -> str:
    """Return a wall-clock time in ms as ISO 8601 in UTC."""
    at = datetime.datetime.fromtimestamp(wall_ms / 1_000, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def table_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of an aligned table. A column is right-aligned when all its cells begin with a digit.

    Clients choose their names, so control characters are escaped: they could move the cursor or break the line.
    """
    cells = [["".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(cell)) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(header)]
    right = [bool(cells) and all(row[at][:1].isdigit() or row[at] == "-" for row in cells) for at in range(len(header))]
    for row in [list(header), *cells]:
        yield "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()


def group_name(row: dict[str, object]) -> str:
    """Return the name of a quota group from its columns of `dim_group`."""
    parts = [
        f"user {row['tag_user']}" if row.get("tag_user") else "",
        f"client-id {row['tag_client_id']}" if row.get("tag_client_id") else "",
    ]
    parts += [f"ip {row['tag_ip']}" if row.get("tag_ip") else "", str(row.get("tags") or "")]
    name = ", ".join(part for part in parts if part)
    return name or f"{row.get('scope') or 'group'} {row.get('listener') or row.get('node') or ''}".strip()
