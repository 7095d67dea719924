"""The comparison with an expectation of a vector file: doubles exactly, NaN with NaN."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Case = dict[str, Any]
Mismatches = Iterable[str]
Runner = Callable[[Case, list[str], bool], Mismatches]
"""Takes a case, the columns of its file, and whether the short path is on; yields the differences."""


def same(expected: Any, got: Any) -> bool:
    """Whether both are the same number to the last bit, or equal otherwise; the text "NaN" stands for NaN."""
    if expected == "NaN" or expected != expected:
        return bool(got != got)
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    return bool(expected == got)


def differences(where: str, expected: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each key of `got` whose expectation differs."""
    for key, value in got.items():
        if not same(expected[key], value):
            yield f"{where}: {key} is {value!r}, expected {expected[key]!r}"


def rows(case: Case, columns: list[str], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows or events of a case with their number, as dictionaries by column."""
    for index, row in enumerate(case[key]):
        yield index, dict(zip(case.get("columns", columns), row, strict=True))
