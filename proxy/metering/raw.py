"""One decision as it is noted on the loop: 40 bytes, read back without a copy."""

from struct import Struct
from typing import Final

import numpy as np
import pyarrow as pa

RAW: Final = Struct("<qqiiiiii")
RECORD_BYTES: Final = RAW.size
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

RECORD: Final = 0
UNCHECKED: Final = 1
UNRECORD: Final = 2
NOTE: Final = 3

EXCUSED_MS: Final = -1
"""Applied to a connection that waits for nothing, because it keeps a group membership alive."""


def batch_of(raw: bytes | bytearray) -> pa.RecordBatch:
    """Return raw decisions as an Arrow batch with the columns of SCHEMA."""
    records = np.frombuffer(raw, DTYPE)
    return pa.RecordBatch.from_arrays([pa.array(np.ascontiguousarray(records[name])) for name in SCHEMA.names], schema=SCHEMA)
