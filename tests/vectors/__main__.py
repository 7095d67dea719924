"""`python -m tests.vectors [--exact] DIR`: replay every vector file in DIR, or in its folder `traces` when DIR has none itself.

The exit code is 0 when all cases passed, 1 when a case failed, and 2 when no file in DIR has a known format. `--exact` measures at every
record, without the short path; the numbers are the same.
"""

import argparse
import sys
from pathlib import Path

from tests.vectors.replay import RUNNERS, format_of, load, replay


def main(arguments: list[str] | None = None) -> int:
    """Print one line per file and the sum; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.vectors")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--exact", action="store_true", help="measure on every record instead of only where a bound may be violated")
    options = parser.parse_args(arguments)
    passed = failed = known = 0
    for path in vector_files(options.directory):
        content = load(path)
        if format_of(content) not in RUNNERS:
            print(f"{path.name}: unknown format, not counted: {format_of(content)}")
            continue
        known += 1
        result = replay(content, lazy=not options.exact)
        passed += result.passed
        failed += result.failed
        print(f"{path.name}: {result.passed} passed, {result.failed} failed" + _explained(result.first_failure))
    if not known:
        print(f"{options.directory}: no vector file of a known format", file=sys.stderr)
        return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def vector_files(directory: Path) -> list[Path]:
    """Return the JSON files of a directory by name, or those of its folder `traces` when it has none itself."""
    return sorted(directory.glob("*.json")) or sorted((directory / "traces").glob("*.json"))


def _explained(first_failure: str | None) -> str:
    return "" if first_failure is None else f"; first: {first_failure}"


if __name__ == "__main__":
    sys.exit(main())
