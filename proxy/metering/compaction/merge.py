"""The tables and the manifest of consecutive file sets of a run as one file set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from metering_format.manifest import FileEntry, Manifest, MergedFileSet, TypeCount, UsageTotal

DIMENSIONS: Final = {"dim_group": "group_ref", "dim_client": "client_ref"}
"""Tables with a row for each number, and the column of the number: the last row is in force, as in one file set."""
_WHEN: Final = ("from_seq", "ts_ms")


def merged_table(name: str, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of a table in order, without those that each file set repeats."""
    table = pa.concat_tables(parts, promote_options="default")
    if name in DIMENSIONS:
        refs = table.column(DIMENSIONS[name]).to_pylist()
        return table.take(sorted({ref: at for at, ref in enumerate(refs)}.values()))
    if name == "dim_bound":
        return table.take(sorted(_firsts(table).values()))
    if name == "states":
        return table.take(_changes(table))
    return table


def _firsts(table: pa.Table) -> dict[tuple[Any, ...], int]:
    """Return the position of the first of equal rows."""
    found: dict[tuple[Any, ...], int] = {}
    for at, row in enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True)):
        found.setdefault(row, at)
    return found


def _changes(table: pa.Table) -> list[int]:
    """Return the positions of settings that differ from those before them."""
    found, before = [], None
    for at, row in enumerate(table.drop_columns(list(_WHEN)).to_pylist()):
        if row != before:
            found.append(at)
        before = row
    return found


def merged_manifest(parts: Sequence[tuple[Manifest, str]], files: Iterable[FileEntry]) -> Manifest:
    """Return the manifest of the merged file set.

    Args:
        parts: the manifests in order, each with the SHA-256 of its text.
        files: the files of the merged file set.
    """
    manifests = [manifest for manifest, _ in parts]
    first, last = manifests[0], manifests[-1]
    timed = [one for one in manifests if one.last_seq >= one.first_seq] or manifests  # others have the time when they were opened
    return msgspec.structs.replace(
        first,
        last_seq=last.last_seq,
        first_ts_ms=min(one.first_ts_ms for one in timed),
        last_ts_ms=max(one.last_ts_ms for one in timed),
        final=last.final,
        dropped_decisions=sum(one.dropped_decisions for one in manifests),
        dropped_usage_rows=sum(one.dropped_usage_rows for one in manifests),
        dropped_comparisons=sum(one.dropped_comparisons for one in manifests),
        files=tuple(files),
        counts=_counts(one.counts for one in manifests),
        usage=UsageTotal(*(sum(numbers) for numbers in zip(*(msgspec.structs.astuple(one.usage) for one in manifests), strict=True))),
        merged=tuple(named for manifest, sha256 in parts for named in _names(manifest, sha256)),
    )


def _names(manifest: Manifest, sha256: str) -> list[MergedFileSet]:
    """Return the file sets of a manifest, each with every manifest that had it."""
    if not manifest.merged:
        return [MergedFileSet(manifest.file_set, (sha256,))]
    return [MergedFileSet(one.file_set, (*one.manifests, sha256)) for one in manifest.merged]


def _counts(parts: Iterable[Mapping[str, TypeCount]]) -> dict[str, TypeCount]:
    found: dict[str, TypeCount] = {}
    for counts in parts:
        for quota_type, count in counts.items():
            before = msgspec.structs.astuple(found.get(quota_type, TypeCount()))
            found[quota_type] = TypeCount(*map(sum, zip(before, msgspec.structs.astuple(count), strict=True)))
    return dict(sorted(found.items()))
