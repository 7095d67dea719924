"""Every promise in docs/explanation/security.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def test_every_test_that_the_page_names_is_there() -> None:
    """Every test that docs/explanation/security.md names exists."""
    named = set(NAMED.findall((ROOT / "docs/explanation/security.md").read_text()))
    defined = {name for path in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(path.read_text())}
    assert named
    assert named - defined == set()
