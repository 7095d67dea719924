"""The worked examples of docs/reference/quotas.md have the right numbers."""

import re
from pathlib import Path

import pytest

from quota.groups.group import QuotaGroup

PAGE = (Path(__file__).parents[2] / "docs/reference/quotas.md").read_text()
TABLES = re.findall(r"<!-- worked: bound=(\d+) -->\n(?:\|.*\n){2}((?:\|.*\n)+)", PAGE)


@pytest.mark.parametrize(("bound", "rows"), TABLES, ids=[f"table-{number}" for number in range(1, len(TABLES) + 1)])
def test_worked_numbers(bound: str, rows: str) -> None:
    """Every row of every worked table is what a quota group computes."""
    group = QuotaGroup({}, float(bound))
    for row in rows.splitlines():
        now_ms, amount, rate, window_ms, throttle_ms = (cell.strip() for cell in row.strip("|").split("|"))
        assert group.record(int(amount), int(now_ms)) == int(throttle_ms)
        assert (repr(group.rate(int(now_ms))), group.window_size_ms(int(now_ms))) == (rate, int(window_ms))


def test_every_table_was_found() -> None:
    """Every worked table of the page is checked."""
    assert len(TABLES) == PAGE.count("| t (ms) | record |") == 4
