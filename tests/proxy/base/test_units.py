"""Sizes as operators write them."""

import pytest

from proxy.base.units import SIZE_MAX, read_size


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1, 1),
        (1_048_576, 1_048_576),
        (1_048_576.0, 1_048_576),
        ("1048576", 1_048_576),
        ("1MiB", 1_048_576),
        ("1 MiB", 1_048_576),
        ("10MB", 10_000_000),
        ("64kB", 64_000),
        ("64KB", 64_000),
        ("64KiB", 65_536),
        ("2GiB", 2_147_483_648),
        ("3TB", 3_000_000_000_000),
        ("1.5MiB", 1_572_864),
        ("0.5kB", 500),
        ("7B", 7),
        (str(SIZE_MAX), SIZE_MAX),
    ],
)
def test_size(written: object, size: int) -> None:
    """A size is read from a number, or from a text with a decimal or binary unit."""
    assert read_size(written) == size


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("10 MBB", '"10 MBB" is not a size'),
        ("10mb", '"10mb" is not a size'),
        ("", '"" is not a size'),
        ("MiB", '"MiB" is not a size'),
        ("-1MB", '"-1MB" is not a size'),
        ("1e6", '"1e6" is not a size'),
        ("\u0661MB", '"\u0661MB" is not a size'),
        ("0", '"0" is not above 0'),
        (0, "0 is not above 0"),
        (-5, "-5 is not above 0"),
        (float("nan"), "nan is not a whole number"),
        (float("inf"), "inf is not a whole number"),
        (1.5, "1.5 is not a whole number"),
        ("0.3B", '"0.3B" is not a whole number of bytes'),
        (True, "true is not a size"),
        ([1], "a list is not a size"),
        (SIZE_MAX + 1, f"{SIZE_MAX + 1} is more than {SIZE_MAX}"),
        ("9999999TiB", f'"9999999TiB" is more than {SIZE_MAX}'),
    ],
)
def test_not_a_size(written: object, complaint: str) -> None:
    """An invalid size is refused with a message that says what is wrong."""
    with pytest.raises(ValueError, match=r".") as caught:
        read_size(written)
    assert str(caught.value) == complaint
