"""The files in bench/results are current and listed."""

import re
from collections import Counter
from pathlib import Path

RESULTS = Path(__file__).parents[3] / "bench" / "results"
NAMED = re.compile(r"(\d{4}-\d{2}-\d{2})-(.+)\.(md|json)")
LINE = re.compile(r"^\| \[(?P<name>.+?)\]\((?P<file>.+?\.md)\) \| `(?:python -m bench|make bench)[^`]*` \| .+ \|$", re.M)


def test_a_newer_result_replaces_the_older_one():
    """bench/results holds one date of each result."""
    kept = Counter((match[2], match[3]) for path in RESULTS.rglob("*") if (match := NAMED.fullmatch(path.name)))
    assert kept
    assert [name for name, times in kept.items() if times > 1] == []


def test_the_table_of_results_has_a_line_for_each_result_with_its_command():
    """bench/results/README.md has one line for each result, with the command that measures it."""
    listed = {line["file"]: line["name"] for line in LINE.finditer((RESULTS / "README.md").read_text())}
    assert listed == {path.relative_to(RESULTS).as_posix(): path.stem.split("-", 3)[3] for path in RESULTS.rglob("2*.md")}
