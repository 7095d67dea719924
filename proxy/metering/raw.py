"""What the loop noted: as it stands in a segment, and as columns."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from proxy.metering.record import GROUPS_MAX, PASSED, RECORDED, TAG_AT, TIME, VALUE_BITS, VALUE_END

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
SCHEMA: Final = pa.schema([pa.field(name, pa.from_numpy_dtype(DTYPE[name]), nullable=False) for name in DTYPE.names or ()])
NOTED: Final = pa.schema([pa.field(name, pa.binary(), nullable=False) for name in ("words", "records")])
"""A row for each batch of the loop's, as it noted it: a hundred times smaller than its decisions one by one where many are alike."""
_IN_WORDS: Final = ("ts_ms", "value", "group_ref")


def groups_in(words: bytes, records: bytes) -> list[int]:
    """Return the numbers of the groups that decided something, the lowest first."""
    told = np.frombuffer(words, "<u8")
    passed = (told[told >> TAG_AT == PASSED >> TAG_AT] >> VALUE_BITS & (GROUPS_MAX - 1)).astype(np.int64)
    found = np.concatenate((passed, np.frombuffer(records, DTYPE)["group_ref"])) if records else passed
    refs: list[int] = np.flatnonzero(np.bincount(found)).tolist()
    return refs


def decoded(words: bytes, records: bytes) -> pa.RecordBatch:
    """Return what words and records say, a row for each decision, with the columns of SCHEMA."""
    told = np.frombuffer(words, "<u8")
    tags = told >> TAG_AT
    times = told[tags == TIME >> TAG_AT] - np.uint64(TIME)
    is_decision = tags != TIME >> TAG_AT
    since = np.cumsum(~is_decision)[is_decision]  # how many times were told before each decision
    told, tags = told[is_decision], tags[is_decision]
    named = np.where(tags == PASSED >> TAG_AT, np.arange(len(told)), 0)
    group_ref = told[np.maximum.accumulate(named)] >> VALUE_BITS & (GROUPS_MAX - 1)
    more = np.where(tags == 0, told >> VALUE_BITS, 0).astype(np.int64)
    if more.any():
        told, tags, since, group_ref = (np.repeat(column, 1 + more) for column in (told, tags, since, group_ref))
    columns: dict[str, Any] = {
        "ts_ms": np.concatenate(([0], times.astype(np.int64)))[since],
        "value": (told & (VALUE_END - 1)).astype(np.int64),
        "group_ref": group_ref.astype(np.int32),
    }
    nothing = np.zeros(len(told), np.int32)
    columns |= {name: nothing for name in SCHEMA.names if name not in _IN_WORDS}
    if records:
        recorded = np.flatnonzero(tags == RECORDED >> TAG_AT)
        columns = _with_records(columns, recorded, np.frombuffer(records, DTYPE))
    return pa.RecordBatch.from_arrays([pa.array(columns[name]) for name in SCHEMA.names], schema=SCHEMA)


def _with_records(columns: dict[str, Any], at: Any, records: Any) -> dict[str, Any]:
    filled = {}
    for name, column in columns.items():
        filled[name] = column if name in _IN_WORDS else column.copy()
        filled[name][at] = records[name]
    return filled
