"""What docs/explanation/security.md promises is held by tests that exist, as what SECURITY.md does."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def test_every_test_that_the_page_names_is_there() -> None:
    """A test that is renamed or removed takes its name out of the promise, or the promise with it."""
    named = set(NAMED.findall((ROOT / "docs/explanation/security.md").read_text()))
    defined = {name for path in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(path.read_text())}
    assert named
    assert named - defined == set()
