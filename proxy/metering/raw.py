"""The encoding of decisions in a segment."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from proxy.meter.record import GROUPS_MAX, PASSED, REMOTE, REMOTE_DATA, SOURCE_AT, VALUE_BITS

DTYPE: Final = np.dtype(
    [
        ("ts_ms", "<i8"),
        ("value", "<i8"),
        ("group_ref", "<i4"),
        ("throttle_ms", "<i4"),
        ("applied_ms", "<i4"),
        ("conn_id", "<i4"),
        ("api_index", "<i4"),  # key << 16 | version
        ("kind", "<i4"),
    ]
)
SEGMENT_SCHEMA: Final = pa.schema([pa.field(name, pa.binary(), nullable=False) for name in ("words", "records")], {"sluice.noted": "3"})
"""Schema of a segment, with the version of its encoding. One row is one batch in the meter's encoding, which is a hundred times smaller
than single decisions if many are equal. The version is raised when words or records change their meaning."""
READABLE: Final = (SEGMENT_SCHEMA, SEGMENT_SCHEMA.with_metadata({"sluice.noted": "2"}))
"""Schemas that can be read. Segments before version 3 have no usage of other processes."""


class SegmentBatch(NamedTuple):
    """A batch in a segment: the number of its first decision, words and records."""

    first_seq: int
    words: bytes
    records: bytes


def groups_in(words: bytes, records: bytes) -> list[int]:
    """Return the numbers of the groups with decisions, in ascending order."""
    noted = np.frombuffer(words, "<i8")
    passed = (noted[noted >= PASSED] >> VALUE_BITS & (GROUPS_MAX - 1)).astype(np.int64)
    found = np.concatenate((passed, np.frombuffer(records, DTYPE)["group_ref"])) if records else passed
    remote = noted[(noted >= REMOTE) & (noted < REMOTE_DATA)]
    if len(remote):
        found = np.concatenate((found, remote & ((1 << SOURCE_AT) - 1)))
    refs: list[int] = np.flatnonzero(np.bincount(found)).tolist()
    return refs
