"""Client names are kept in bounded memory, and two names are never mistaken for each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.names import NAME_BYTES_MAX, KeptName, kept_name

SHORT_FORM_BYTES = NAME_BYTES_MAX + 1 + 64


@pytest.mark.parametrize("name", ["", "etl", "é" * 128, "x" * NAME_BYTES_MAX, "\U0001f600" * 64])
def test_a_name_of_256_bytes_is_kept_as_it_is(name: str) -> None:
    """A name of up to 256 bytes in UTF-8 is kept unchanged."""
    assert kept_name(name) == name
    assert not isinstance(kept_name(name), KeptName)


@pytest.mark.parametrize("name", ["x" * 257, "é" * 129, "x" + "\U0001f600" * 64, "a" * 32_767, "\ud800" * 100])
def test_a_longer_name_is_kept_as_its_beginning_and_a_digest(name: str) -> None:
    """A longer name is kept as a short form of constant length, and shortening that again changes nothing."""
    short = kept_name(name)
    assert len(short.encode()) == SHORT_FORM_BYTES
    assert kept_name(short) is short
    assert isinstance(short, KeptName)
    assert short == kept_name(name)


def test_long_names_that_begin_alike_differ() -> None:
    """Two long names with the same beginning have different short forms."""
    assert kept_name("x" * 300 + "a") != kept_name("x" * 300 + "b")


def test_no_name_equals_the_short_form_of_another() -> None:
    """A name that looks like a short form is kept differently from the name with that short form."""
    short = kept_name("x" * 300)
    impostor = "".join(short)
    assert impostor == short
    assert kept_name(impostor) != kept_name("x" * 300)


@given(st.text(max_size=400), st.text(max_size=400))
def test_two_names_are_kept_as_two(one: str, other: str) -> None:
    """Two names have the same kept form only if they are equal, and a kept form has at most 321 bytes."""
    assert (kept_name(one) == kept_name(other)) == (one == other)
    assert len(kept_name(one).encode("utf-8", "surrogatepass")) <= SHORT_FORM_BYTES
