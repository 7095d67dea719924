"""The tenants file, which maps users and client-ids to tenants. CSV, read from top to bottom; the first line that fits wins."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.errors import BadInputError

HEADER: Final = ("user", "client_id", "tenant")
UNASSIGNED: Final = "(unassigned)"
LINES_MAX: Final = 100_000
_REMEDY: Final = f"write a CSV file whose first line is {','.join(HEADER)}"


@dataclass(frozen=True, slots=True)
class TenantLine:
    """A line of the file; patterns as anchored regular expressions for Spark, which has Java's."""

    position: int
    user: str
    client_id: str
    tenant: str


def read_tenants(path: Path) -> list[TenantLine]:
    """Read a tenants file; `*` and `?` stand for any characters and one, an empty field for any name.

    Raises:
        BadInputError: it cannot be read, or is no such file.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: cannot be read as CSV ({error}); {_REMEDY}") from error
    if not rows or tuple(name.strip() for name in rows[0]) != HEADER:
        raise BadInputError(f"{path}: does not begin with {','.join(HEADER)}; {_REMEDY}")
    if len(rows) > LINES_MAX:
        raise BadInputError(f"{path}: more than {LINES_MAX} lines; use patterns")
    lines = []
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(HEADER) or not row[2].strip():
            raise BadInputError(f"{path}: line {number} is not user,client_id,tenant; write all three, the tenant not empty")
        user, client_id, tenant = (field.strip() for field in row)
        lines.append(TenantLine(number, _regex(user), _regex(client_id), tenant))
    return lines


def _regex(glob: str) -> str:
    """Escape all but `*` and `?`, which stand for line breaks too: clients choose their ids, and none may be outside of every line."""
    if not glob:
        return r"(?s)^.*\z"
    parts = [{"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in glob]
    return rf"(?s)^{''.join(parts)}\z"
