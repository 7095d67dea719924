"""Java's properties and JAAS entries."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.properties import JaasEntry, PropertiesError, read_jaas, read_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("# a comment\n! another\n\n  \t# indented", {}),
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b\r\nc d", {"a": "b", "c": "d"}),
        ("  a=b ", {"a": "b "}),
        ("a\na.b=", {"a": "", "a.b": ""}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "é\t\nq"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_javas(text: str, found: dict[str, str]) -> None:
    """Comments, the three separators, continuation lines and escapes are read as by `Properties.load`."""
    assert read_properties(text) == found


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    """Any text is read, or refused for the one reason that the format has."""
    try:
        read_properties(text)
    except PropertiesError as error:
        assert "hexadecimal" in str(error)  # noqa: PT017
    with contextlib.suppress(PropertiesError):
        read_jaas(text)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_java_writes_is_read(properties: dict[str, str]) -> None:
    """Keys and values with escaped special characters, as Java writes them, are read back unchanged."""

    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in properties.items())
    assert read_properties(text) == properties


def test_a_jaas_entry_is_module_and_options() -> None:
    """A JAAS entry is a module and options over any number of lines, with bare or quoted values."""
    text = 'a.b.Module required username="al\\"ice" \n password=\'p w\' tokenauth=true;'
    assert read_jaas(text) == JaasEntry("a.b.Module", {"username": 'al"ice', "password": "p w", "tokenauth": "true"})
    assert read_jaas("M sufficient;") == JaasEntry("M", {})


@pytest.mark.parametrize(
    "text", ["", "M", "M required", "M maybe;", 'M required a="b"', "M required a;", "M required a=;", 'M required a="b;', "; required;"]
)
def test_what_is_no_jaas_entry(text: str) -> None:
    """A malformed JAAS entry is refused, and the message shows nothing of it."""
    with pytest.raises(PropertiesError):
        read_jaas(text)
