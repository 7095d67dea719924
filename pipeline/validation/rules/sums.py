"""Checks that the sums of a file set's rows equal the sums in its manifest."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from metering_format.manifest import Manifest, TypeCount
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Ints

COUNTED: Final = ["n", "sum", "throttled_n", "throttle_ms_sum"]
"""Columns of samples that are added up to a `TypeCount`."""
REMOTE_SUM_COLUMNS: Final = ["remote_n", "remote_sum"]
"""Columns that are subtracted when processes share usage, since each process counts only its own usage."""


def counts_of(samples: pa.Table, kinds: Sequence[tuple[str, Ints]]) -> dict[str, TypeCount]:
    """Return the sums of rows by quota type.

    Args:
        samples: rows of the table `samples`.
        kinds: pairs of a quota type and groups. A type may occur in several pairs; together they contain all groups.
    """
    counts: dict[str, TypeCount] = {}
    for quota_type, refs in kinds:
        its = samples.select([*COUNTED, *(name for name in REMOTE_SUM_COLUMNS if name in samples.column_names)])
        if len(kinds) > 1:
            its = its.filter(pc.is_in(samples.column("group_ref"), value_set=pa.array(refs, pa.int32())))
        if len(its):
            decisions, units, throttled, throttle_ms, *elsewhere = (pc.sum(column).as_py() or 0 for column in its.columns)
            remote_n, remote_sum = elsewhere or (0, 0)
            known = counts.get(quota_type, TypeCount())
            counts[quota_type] = TypeCount(
                known.decisions + decisions - remote_n,
                known.units + units - remote_sum,
                known.throttled + throttled,
                known.throttle_ms + throttle_ms,
            )
    return counts


def check_sums(counts: Mapping[str, TypeCount], manifest: Manifest, findings: Findings) -> None:
    """Compare the sums by quota type. A type that one side lacks counts as 0."""
    for quota_type in sorted({*manifest.counts, *counts}):
        declared, found = manifest.counts.get(quota_type, TypeCount()), counts.get(quota_type, TypeCount())
        if found != declared:
            what = f"sums of {quota_type} against the manifest"
            findings.add(Finding(Kind.GAP, WHOLE_FILE, manifest.first_seq, manifest.first_ts_ms, str(declared), str(found), what))
