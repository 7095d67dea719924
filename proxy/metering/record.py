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
"""What nothing recorded: a fetch that waits."""
CHARGED: Final = 4
REFUSED: Final = 5
OWED: Final = 6
SETTLED: Final = 7
ASKED: Final = 8
"""Controller mutations: counted, since the balance was not below zero; refused, since it was; counted whatever the balance, and waited for
behind (permissive); the difference to what was counted, when the answer says what really happened; asked and not below zero, while another
bucket of the same chain of groups refused."""

EXCUSED_MS: Final = -1
"""Applied to a connection that waits for nothing, because it keeps a group membership alive."""
