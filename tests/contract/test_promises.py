"""What SECURITY.md and docs/security.md promise is held by tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


@pytest.mark.parametrize("document", ["SECURITY.md", "docs/security.md"])
def test_every_test_that_a_promise_names_is_there(document: str) -> None:
    """A test that is renamed or removed takes its name out of the promise, or the promise with it."""
    named = set(NAMED.findall((ROOT / document).read_text()))
    defined = {name for path in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(path.read_text())}
    assert named
    assert named - defined == set()
