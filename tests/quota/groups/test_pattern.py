"""Patterns of user and client-id names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.groups.pattern import PATTERN_CHARS_MAX, Pattern


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("etl", "etl", True),
        ("etl", "etl2", False),
        ("etl", "ETL", False),
        ("etl-*", "etl-", True),
        ("etl-*", "etl-orders-1", True),
        ("etl-*", "my-etl-1", False),
        ("*-prod", "a-prod-prod", True),
        ("*-prod", "a-prod-test", False),
        ("*", "", True),
        ("*", "anything", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "acb", False),
        ("?", "ü", True),
        ("?", "", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        (r"\\\?", r"\?", True),
        ("[a]{1}.", "[a]{1}.", True),
        ("<default>", "<default>", True),
    ],
)
def test_what_fits(pattern: str, name: str, fits: bool) -> None:
    """A star matches any run, a question mark one character, a backslash makes the next character literal, and others match themselves."""
    assert Pattern(pattern).matches(name) is fits


def as_regular_expression(text: str) -> re.Pattern[str]:
    """Return the same pattern as a regular expression of Python's backtracking engine."""
    pieces = re.findall(r"\\.|.", text, re.DOTALL)
    return re.compile("".join(".*" if one == "*" else "." if one == "?" else re.escape(one[-1]) for one in pieces), re.DOTALL)


LETTERS = st.text("ab*?-", max_size=8)


@given(LETTERS.filter(bool), st.lists(st.text("ab*?-\n", max_size=8), max_size=6))
def test_as_another_engine_has_it(text: str, names: list[str]) -> None:
    """Any pattern matches the same names as Python's regular expressions."""
    for name in [*names, text]:
        assert Pattern(text).matches(name) == bool(as_regular_expression(text).fullmatch(name))


@given(st.text(min_size=1, max_size=50))
def test_every_name_can_be_written(name: str) -> None:
    """A name with a backslash before each character is a pattern that matches it."""
    assert Pattern("".join(f"\\{character}" for character in name)).matches(name)


def test_the_worst_pattern_on_the_longest_name() -> None:
    """A pattern on which a backtracking engine would take exponential time is matched on the longest name."""
    assert not Pattern("*a" * (PATTERN_CHARS_MAX // 2)).matches("a" * 127 + "b" * 32_000)
    assert Pattern("*a" * (PATTERN_CHARS_MAX // 2)).matches("a" * 32_767)


@pytest.mark.parametrize(("text", "problem"), [("", "is empty"), ("a" * 257, "is longer than 256"), ("a\\", "ends with a backslash")])
def test_what_is_no_pattern(text: str, problem: str) -> None:
    """An invalid pattern is refused with the reason."""
    with pytest.raises(ValueError, match=problem):
        Pattern(text)


@pytest.mark.parametrize(
    ("one", "other", "covers"),
    [
        ("*", "etl-*", True),
        ("etl-*", "*", False),
        ("etl-*", "etl-orders-*", True),
        ("etl-*", "etl-", True),
        ("etl-?", "etl-*", False),
        ("etl-?", "etl-?", True),
        ("etl-?", "etl-a", True),
        ("etl-a", "etl-?", False),
        ("*-prod", "eu-*-prod", True),
        ("*-prod", "eu-*", False),
        ("a*c", "a?b*c", True),
        ("**", "a*", True),
        (r"a\*", "a*", False),
        ("a*", r"a\*", True),
    ],
)
def test_a_pattern_covers_another(one: str, other: str, covers: bool) -> None:
    """A pattern covers another one when it matches each name that the other one matches."""
    assert Pattern(one).covers(Pattern(other)) is covers


@given(st.text("ab*?", min_size=1, max_size=6), st.text("ab*?", min_size=1, max_size=6), st.lists(st.text("abc", max_size=6), max_size=30))
def test_what_is_covered_is_matched(one: str, other: str, names: list[str]) -> None:
    """A pattern that covers another one matches each name that the other one matches."""
    wide, narrow = Pattern(one), Pattern(other)
    if wide.covers(narrow):
        assert not [name for name in names if narrow.matches(name) and not wide.matches(name)]


@given(st.text("ab*?", min_size=1, max_size=8))
def test_a_pattern_covers_itself(text: str) -> None:
    """Every pattern covers itself, and `*` covers every pattern."""
    assert Pattern(text).covers(Pattern(text))
    assert Pattern("*").covers(Pattern(text))
