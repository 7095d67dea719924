"""The encoding of decisions on the event loop: one word of 8 bytes for nearly all, and 40 bytes more for the others.

Without metering no other part of it is loaded. A word is a signed number, and its range is its type: from
`TIME` on times, `RECORDED`, runs below zero, values above it, from `REMOTE` on usage from elsewhere, and from `PASSED` on those with their
group. Zero is none.
"""

from struct import Struct
from typing import Final

RAW: Final = Struct("<qqiiiiii")
"""Monotonic ts_ms, value, group_ref, throttle_ms, applied_ms, conn_id, api_index (key << 16 | version), kind."""
RECORD_BYTES: Final = RAW.size

WORD_BYTES: Final = 8
TAG_AT: Final = 62
VALUE_BITS: Final = 34
VALUE_END: Final = 1 << VALUE_BITS
GROUPS_MAX: Final = 1 << TAG_AT - VALUE_BITS
"""Groups with a higher number have no words; neither have values from `VALUE_END` on, or below zero: they need a record."""

REMOTE: Final = 1 << 59
"""Plus a source << SOURCE_AT plus group_ref: usage of another process, followed by two words that are no decisions. With `REMOTE_SKIPPED`
it was not recorded."""
REMOTE_SKIPPED: Final = 1 << 58
SOURCE_AT: Final = 31
REMOTE_AMOUNT: Final = 3 << 59
"""Plus the amount, from - 2^59 on and below 2^59."""
REMOTE_TOTAL: Final = 3 << 60
"""Plus the total of the source, from - 2^60 on and below 2^60."""
REMOTE_DATA: Final = 1 << 60
"""Words from here on and below `PASSED` are one of the two."""
REMOTE_WORDS: Final = 3

PASSED: Final = 1 << TAG_AT
"""Plus group_ref << VALUE_BITS plus the value: a checked record without a delay, at the time of the last `TIME` before it. A value
above 0 without a tag belongs to the group of the last word with this tag."""
TIME: Final = -2 << TAG_AT
"""Plus a monotonic ts_ms: no decision."""
RECORDED: Final = -1 << TAG_AT
"""The next RAW contains the decision."""
RUN_VALUE_BITS: Final = 20
RUN_VALUE_END: Final = 1 << RUN_VALUE_BITS
MORE: Final = -RUN_VALUE_END
"""Times a number, minus a value below `RUN_VALUE_END`: that value, and this number of further equal ones. The number nearly always has
one digit in Python's representation, which is much faster than more digits."""
