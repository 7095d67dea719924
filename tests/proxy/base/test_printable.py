"""Text of clients that is made safe to print."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from proxy.base.printable import printable

UNSAFE_CATEGORIES = {"Cc", "Zl", "Zp", "Cs"}
UNSAFE_DIRECTIONS = {"RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI"}


@given(st.text(alphabet=st.characters(), max_size=80), st.integers(8, 100))
def test_nothing_unsafe_comes_through(text: str, length_max: int) -> None:
    """The result has no control character, separator, surrogate or direction mark, and keeps the maximum length."""
    safe = printable(text, length_max)
    assert len(safe) <= length_max
    assert not {unicodedata.category(one) for one in safe} & UNSAFE_CATEGORIES
    assert not {unicodedata.bidirectional(one) for one in safe} & UNSAFE_DIRECTIONS


def test_plain_text_stays() -> None:
    """Letters of any script are unchanged."""
    assert printable("Zoë-客户端-7", 128) == "Zoë-客户端-7"
