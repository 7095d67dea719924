"""What the rows of a file set say adds up to what its manifest says."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from metering_format.manifest import Manifest, TypeCount
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Ints

COUNTED: Final = ["n", "sum", "throttled_n", "throttle_ms_sum"]
"""The columns of samples that `TypeCount` is made of."""


def counts_of(samples: pa.Table, kinds: Sequence[tuple[str, Ints]]) -> dict[str, TypeCount]:
    """Add up rows by quota type.

    Args:
        kinds: quota types, each with some of its groups; all groups together.
    """
    counts: dict[str, TypeCount] = {}
    for quota_type, refs in kinds:
        its = samples.select(COUNTED)
        if len(kinds) > 1:
            its = its.filter(pc.is_in(samples.column("group_ref"), value_set=pa.array(refs, pa.int32())))
        if len(its):
            decisions, units, throttled, throttle_ms = (pc.sum(column).as_py() for column in its.columns)
            known = counts.get(quota_type, TypeCount())
            counts[quota_type] = TypeCount(
                known.decisions + decisions, known.units + units, known.throttled + throttled, known.throttle_ms + throttle_ms
            )
    return counts


def check_sums(counts: Mapping[str, TypeCount], manifest: Manifest, findings: Findings) -> None:
    """What one of the two does not count at all is nothing there, and has to be nothing in the other."""
    for quota_type in sorted({*manifest.counts, *counts}):
        declared, found = manifest.counts.get(quota_type, TypeCount()), counts.get(quota_type, TypeCount())
        if found != declared:
            what = f"sums of {quota_type} against the manifest"
            findings.add(Finding(Kind.GAP, WHOLE_FILE, manifest.first_seq, manifest.first_ts_ms, str(declared), str(found), what))
