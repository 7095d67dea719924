"""Replays the table of the name sanitizer."""

from collections.abc import Iterator

from quota.entity import desanitize, sanitize
from quota.errors import SanitizedNameError
from tests.vectors.compare import Case, differences, rows


def run_sanitizer(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Encode and decode names, quote tag values."""
    for index, row in rows(case, columns, "rows"):
        if "encoded" in row:
            got = {"decoded": _decoded(row["encoded"])}
        else:
            raw = row["raw"]
            got = {"sanitized": sanitize(raw), "desanitized": desanitize(sanitize(raw))}
        yield from differences(f"row {index}", row, got)


def _decoded(encoded: str) -> str | None:
    try:
        return desanitize(encoded)
    except SanitizedNameError:
        return None
