"""The architecture names files by their whole paths, and each of them is there."""

import re

import pytest

from tests.support.documents import ROOT

ARCHITECTURE = ROOT / "docs/explanation/architecture.md"
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


def table_rows(document: str) -> dict[str, str]:
    """Return the second cell of each row of two cells, by the first."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", document, re.MULTILINE)
    return {first.strip(): second for first, second in rows if not first.startswith("-")}


def named_files(text: str) -> list[str]:
    """Return what is written as the path of a file or a folder."""
    return [name for name in re.findall(r"`([\w./-]+)`", text) if name.endswith((".py", ".md", "/"))]


def missing_files(first: str, second: str) -> list[str]:
    """Return the files that a row names and that are not there; in the row of a folder paths begin there."""
    folder = ROOT / first.strip("`") if re.fullmatch(r"`[\w/]+/`", first) else ROOT
    return [name for name in named_files(second) if not (folder / name).exists() and not (ROOT / name).exists()]


@pytest.mark.parametrize("first", table_rows(ARCHITECTURE.read_text()))
def test_each_file_of_a_table_is_there(first: str) -> None:
    """Its path is whole, from the root of the checkout or from the folder of its row, so that a reader can open it."""
    assert missing_files(first, table_rows(ARCHITECTURE.read_text())[first]) == []


def test_each_file_in_the_text_is_there() -> None:
    """Outside the tables paths are whole from the root of the checkout."""
    text = re.sub(r"^\|.*$", "", ARCHITECTURE.read_text(), flags=re.MULTILINE)
    assert [name for name in named_files(text) if name.endswith(".py") and not (ROOT / name).exists()] == []


def test_the_table_of_changes_says_where_each_begins() -> None:
    """Each of the ten usual changes has a row, and the row names a file."""
    rows = table_rows(ARCHITECTURE.read_text())
    assert [change for change in CHANGES if not named_files(rows.get(change, ""))] == []


def test_a_path_that_is_not_there_is_found() -> None:
    """Names without their folder are not there either."""
    ((first, second),) = table_rows("| Question | `store.py`, `proxy/app/app.py` |\n").items()
    assert missing_files(first, second) == ["store.py"]
    assert missing_files("`proxy/app/`", "`app.py`, `store.py`") == ["store.py"]
