"""Lines of keys in a TOML file, by the names that problems give them."""

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.lines import key_lines, nearest_line

TEXT = '''# a comment with [brackets] and = signs
workers = 2

[upstream]
bootstrap = "a:1" # [[no table]]
"quoted key" = """
[not] = "a table"
"""
[[listener]]
name = 'one'
principal_mapping = [
  "a]", # ]
  "b",
]

[listener.tls]
ca = "ca.pem"
[[listener]]
tls.certificate = { chain = "x", key = "]" }

  [listener.sni]
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("workers", 2),
        ("upstream", 4),
        ("upstream.bootstrap", 5),
        ("upstream.quoted key", 6),
        ("listener[1]", 9),
        ("listener[1].principal_mapping", 11),
        ("listener[1].tls", 16),
        ("listener[1].tls.ca", 17),
        ("listener[1].tls.key", 16),
        ("listener[2]", 18),
        ("listener[2].tls.certificate", 19),
        ("listener[2].tls.certificate.chain", 19),
        ("listener[2].sni", 21),
        ("listener[2].address", 18),
        ("listener[3].address", None),
        ("admin", None),
    ],
)
def test_a_key_is_in_its_line(key: str, line: int | None) -> None:
    """A key that the file has is in its own line; one that is missing is in the line of its table."""
    tomllib.loads(TEXT)
    assert nearest_line(key_lines(TEXT), key) == line


def names(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each key and table outside of inline ones."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for at, item in enumerate(value, 1):
                yield f"{name}[{at}]", item
                yield from names(item, f"{name}[{at}].")
        else:
            yield name, value
            if isinstance(value, dict):
                yield from names(value, f"{name}.")


KEYS = st.text("abc-_", min_size=1, max_size=4)
VALUES = st.one_of(st.integers(), st.booleans(), st.text("ab\"[]={}#\\\n'", max_size=8), st.lists(st.text("a]#\n", max_size=3), max_size=3))
TABLES = st.recursive(
    st.dictionaries(KEYS, VALUES, max_size=3),
    lambda inner: st.dictionaries(KEYS, st.one_of(VALUES, inner, st.lists(inner.filter(bool), min_size=1, max_size=2)), max_size=3),
    max_leaves=8,
)


@given(TABLES)
def test_every_key_of_a_written_file_is_found(table: dict[str, Any]) -> None:
    """Each key of a file that another library wrote is found, in a line that contains it."""
    text = tomlkit.dumps(table)
    lines, read = key_lines(text), tomllib.loads(text)
    assert read == table
    for name, value in names(table):
        if not isinstance(value, dict):
            line = text.split("\n")[lines[name] - 1]
            assert name.rpartition(".")[2].partition("[")[0] in line
