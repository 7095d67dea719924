"""The architecture page says where each usual change of the code begins."""

import re

from tests.support.documents import ROOT

TEXT = (ROOT / "docs/explanation/architecture.md").read_text()
CHANGES = (
    "A new API that carries addresses",
    "A new quota type",
    "A new close reason",
    "A new metric",
    "A new store of quotas",
    "A new configuration key",
    "A new column of metering",
    "A new rule of the validator",
    "A new admin page",
    "A new SASL mechanism",
)


def test_the_table_of_changes_says_where_each_begins() -> None:
    """The table has a row for each of the ten usual changes, and the row names a file or a folder."""
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+) \|$", TEXT, re.MULTILINE))
    assert [change for change in CHANGES if not re.search(r"`[\w./-]+(?:\.py|/)`", rows.get(change, ""))] == []
