"""The lists on the operations page that operators look things up in are complete and correct."""

import re
from pathlib import Path

from proxy.app import reload
from proxy.base.close_reason import CloseReason
from proxy.base.pause_reason import REASON_NAMES

ROOT = Path(__file__).parents[3]
OPERATIONS = (ROOT / "docs/how-to/operations.md").read_text()
EVENTS = (ROOT / "docs/reference/events.md").read_text()
SOURCES = "\n".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))


def first_column(heading: str) -> list[str]:
    """Return the code spans in the first column of the tables under a heading."""
    section = EVENTS.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|")[0] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_close_reason_is_explained_once_in_the_order_of_the_list() -> None:
    """The table of close reasons has the values of `CloseReason`, each once and in the same order."""
    assert first_column("Why a connection ended") == [reason.value for reason in CloseReason]


def test_every_log_event_is_explained() -> None:
    """The table of log events names each event that the code can log once, and no other event."""
    said = set(re.findall(r'(?:log\.(?:debug|info|warning|error|info_of)|write_log|log_change)\(\s*"(\w+)"', SOURCES))
    events = first_column("What the log says")
    assert set(events) == said
    assert len(events) == len(set(events))


def test_what_needs_a_restart_is_what_the_reload_says() -> None:
    """The documented keys that need a restart are those that a reload rejects."""
    (row,) = [line for line in OPERATIONS.splitlines() if "| at the next start" in line]
    fixed = {*reload.FIXED, *(f"quotas.{key}" for key in reload.FIXED_QUOTAS), *(f"limits.{key}" for key in reload.FIXED_LIMITS), "log"}
    assert set(re.findall(r"`([^`]+)`", row.split("|")[1])) == fixed


def test_every_reason_to_pause_is_named() -> None:
    """The page docs/explanation/request-life.md names every reason for which reading pauses."""
    page = (ROOT / "docs/explanation/request-life.md").read_text()
    assert [name for name in REASON_NAMES.values() if f"`{name}`" not in page] == []


def test_decisions_have_their_four_parts() -> None:
    """The decision records are numbered without a gap, and each has the parts Status, Context, Decision and Consequences in this order."""
    decisions = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    for path in decisions:
        text = path.read_text()
        assert text.startswith(f"# {int(path.name[:4])}. ")
        assert re.findall(r"^(?:## |\*\*)(Status|Context|Decision|Consequences)\b", text, re.MULTILINE) == [
            "Status", "Context", "Decision", "Consequences",
        ]  # fmt: skip
