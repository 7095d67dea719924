"""What the rows of a file set say adds up to what its manifest says."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from metering_format.manifest import Manifest, TypeCount
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Ints

COUNTED: Final = ["n", "sum", "throttled_n", "throttle_ms_sum"]
"""The columns of samples that `TypeCount` is made of ..."""
ELSEWHERE: Final = ["remote_n", "remote_sum"]
"""... less these, where processes share usage: each counts its own."""


def counts_of(samples: pa.Table, kinds: Sequence[tuple[str, Ints]]) -> dict[str, TypeCount]:
    """Add up rows by quota type.

    Args:
        kinds: quota types, each with some of its groups; all groups together.
    """
    counts: dict[str, TypeCount] = {}
    for quota_type, refs in kinds:
        its = samples.select([*COUNTED, *(name for name in ELSEWHERE if name in samples.column_names)])
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
    """What one of the two does not count at all is nothing there, and has to be nothing in the other."""
    for quota_type in sorted({*manifest.counts, *counts}):
        declared, found = manifest.counts.get(quota_type, TypeCount()), counts.get(quota_type, TypeCount())
        if found != declared:
            what = f"sums of {quota_type} against the manifest"
            findings.add(Finding(Kind.GAP, WHOLE_FILE, manifest.first_seq, manifest.first_ts_ms, str(declared), str(found), what))
