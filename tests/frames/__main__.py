"""`python -m tests.frames DIR`: check the wire format against every golden frame file in DIR.

Prints one line per file and, last, `N passed, M failed`. The exit code is 1 when a case failed, and 2 when no file has a known format.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.frames.checks import CHECKS

FAILURES_SHOWN = 20


def main(arguments: list[str]) -> int:
    """Check every known file in the given directory."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tests.frames DIR  (a directory with golden frame files)", file=sys.stderr)
        return 2
    counts = [counted for path in sorted(Path(arguments[0]).glob("*.json")) if (counted := run_file(path)) is not None]
    if not counts:
        print(f"{arguments[0]}: no golden frame file of a known format", file=sys.stderr)
        return 2
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def run_file(path: Path) -> tuple[int, int] | None:
    """Run the cases of one file and print the result; return (passed, failed), or None for an unknown format."""
    content = read(path)
    found = content.get("format") if isinstance(content, dict) else None
    check = CHECKS.get(found) if isinstance(found, str) else None
    if check is None or not isinstance(content.get("cases"), list):
        print(f"{path.name}: format {found!r} is not known, not counted")
        return None
    failures = [problem for case in content["cases"] if (problem := run_case(check, case)) is not None]
    failed = len(failures)
    print(f"{path.name}: {len(content['cases']) - failed} passed, {failed} failed")
    for problem in failures[:FAILURES_SHOWN]:
        print(f"  {problem}")
    return len(content["cases"]) - failed, failed


def read(path: Path) -> Any:
    """Return the JSON value of a file, or None when the file is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None


def run_case(check: Any, case: dict[str, Any]) -> str | None:
    """Return the error of one case, or None."""
    try:
        check(case)
    except Exception as problem:  # noqa: BLE001 - whatever a case does to the parsers is a failed case
        return f"{case.get('name')}: {type(problem).__name__}: {problem}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
