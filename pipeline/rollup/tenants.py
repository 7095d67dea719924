"""The tenants file, which maps users and client-ids to tenants. It is CSV; the first line that matches wins."""

import csv
import io
import re
from dataclasses import dataclass
from typing import Final

from pipeline.errors import BadInputError
from pipeline.storage.paths import AnyPath

HEADER: Final = ("user", "client_id", "tenant")
UNASSIGNED: Final = "(unassigned)"
LINES_MAX: Final = 100_000
_REMEDY: Final = f"write a CSV file whose first line is {','.join(HEADER)}"


@dataclass(frozen=True, slots=True)
class TenantLine:
    """A line of the file. Patterns are anchored regular expressions in Java's syntax, which Spark uses."""

    position: int
    user: str
    client_id: str
    tenant: str


def read_tenants(path: AnyPath) -> list[TenantLine]:
    """Read a tenants file. `*` matches any characters, `?` matches one, and an empty field matches any name.

    Raises:
        BadInputError: the file cannot be read or parsed.
    """
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")), strict=True))
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
    """Escape all characters but `*` and `?`. Both match line breaks too, so that a client-id with a line break matches as well."""
    if not glob:
        return r"(?s)^.*\z"
    parts = [{"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in glob]
    return rf"(?s)^{''.join(parts)}\z"
