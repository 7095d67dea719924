"""Compares the sums of the rows of file sets with the manifests. The run fails when they differ."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from metering_format.manifest import TypeCount, UsageTotal
from pipeline.errors import IncompleteError
from pipeline.rollup.inputs import Input

USAGE_SUMS: Final = ("requests", "produce_bytes", "fetch_bytes", "handler_ns")
DECISION_SUMS: Final = ("n", "sum", "throttled_n", "throttle_ms_sum")


class Row(Protocol):
    """A row of sums, by column."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the value of a column."""


def check_usage(inputs: Iterable[Input], sums: Iterable[Row]) -> dict[str, int]:
    """Compare usage with the manifests; return the number of quarantined rows of each file set.

    Raises:
        IncompleteError: a sum differs.
    """
    found = {row["stem"]: row for row in sums}
    for item in inputs:
        row = found.get(item.manifest.file_set)
        read = UsageTotal(*((row[name] or 0) if row else 0 for name in USAGE_SUMS))
        if read != item.manifest.usage:
            raise IncompleteError(_differs(item, "usage", read, item.manifest.usage))
    return {file_set: row["problems"] for file_set, row in found.items()}


def check_decisions(inputs: Iterable[Input], sums: Iterable[Row]) -> tuple[int, dict[str, int]]:
    """Compare decisions with the manifests; return the number of quarantined rows, and of quarantined decisions by file set.

    Raises:
        IncompleteError: a sum differs.
    """
    found: dict[str, dict[str | None, TypeCount]] = {}
    problems, aside = 0, dict[str, int]()
    for row in sums:
        found.setdefault(row["stem"], {})[row["quota_type"]] = TypeCount(*(row[name] or 0 for name in DECISION_SUMS))
        problems += row["problems"]
        aside[row["stem"]] = aside.get(row["stem"], 0) + (row["aside"] or 0)
    for item in inputs:
        read, declared = found.get(item.manifest.file_set, {}), dict(item.manifest.counts)
        if None in read:  # rows of an unknown group have no quota type, so only the sums over all types are compared
            read, declared = {None: _total(read.values())}, {"all": _total(declared.values())}
            read = {"all": read[None]}
        for quota_type in sorted(set(declared) | {name for name in read if name is not None}):
            its, ours = declared.get(quota_type, TypeCount()), read.get(quota_type, TypeCount())
            if its != ours:
                raise IncompleteError(_differs(item, f"decisions of {quota_type}", ours, its))
    return problems, aside


def _total(counts: Iterable[TypeCount]) -> TypeCount:
    total = TypeCount()
    for count in counts:
        total = TypeCount(*(getattr(total, name) + getattr(count, name) for name in total.__struct_fields__))
    return total


def _differs(item: Input, what: str, read: object, declared: object) -> str:
    return f"{item.manifest.file_set}: {what} add up to {read}, the manifest has {declared}; run `sluice meter verify-manifests`"
