"""One decision as it is noted on the loop: 40 bytes. Nothing else of metering is loaded by a proxy that does not meter."""

from struct import Struct
from typing import Final

RAW: Final = Struct("<qqiiiiii")
"""Monotonic ts_ms, value, group_ref, throttle_ms, applied_ms, conn_id, api_index (key << 16 | version), kind."""
RECORD_BYTES: Final = RAW.size
PASSED: Final = Struct(f"<qqi{RAW.size - 20}x")
"""The first three of a RAW; the others are zero."""
assert PASSED.size == RAW.size

RECORD: Final = 0
UNCHECKED: Final = 1
UNRECORD: Final = 2
NOTE: Final = 3

EXCUSED_MS: Final = -1
"""Applied to a connection that waits for nothing, because it keeps a group membership alive."""
