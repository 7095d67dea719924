"""Raw decisions as columns, without a copy of the bytes."""

from typing import Final

import numpy as np
import pyarrow as pa

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


def batch_of(raw: bytes | bytearray) -> pa.RecordBatch:
    """Return raw decisions as an Arrow batch with the columns of SCHEMA."""
    records = np.frombuffer(raw, DTYPE)
    return pa.RecordBatch.from_arrays([pa.array(np.ascontiguousarray(records[name])) for name in SCHEMA.names], schema=SCHEMA)
