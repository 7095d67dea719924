"""Words by which processes tell each other about the members of a paced group: how many there are, and which request goes next."""

from __future__ import annotations

from typing import Final

from proxy.enforcement.paced.member import Place
from quota.paced_schedule import MS_NS

CLAIM_PARTS: Final = 256
"""Parts of a weight in which the weights of members are published."""
WEIGHTS_MAX: Final = 4_095
WORD: Final = 1 << 60
"""Part of each word about members, so that it is no size of a response."""
TIME_MS: Final = 256
KEPT_MS: Final = 2_000
"""How long a published word, and the claim of a member that waits, are valid. Requests that wait are checked within a second."""
SEVERAL: Final = 0xFFF
"""In place of the hash of a member: there are several."""
FETCHES_MAX: Final = 0xFFFF
WAITS: Final = 1 << 62
READ_AT: Final = 16
READ_BITS: Final = 31
VIRTUAL_AT: Final = READ_AT + READ_BITS
VIRTUAL_BITS: Final = 15
VIRTUAL_NS: Final = 16 * MS_NS
"""The word about the first waiting request: `WAITS`, the virtual time of its member in units of this, the time of its read in ms, and the
number of open fetches in the process. Both times are cut, and compared by their difference."""


def members_word(weights: float, only: int, now_ms: int) -> int:
    """Return the word about the members with a claim: the sum of their weights, and the hash of the only one, or `SEVERAL`."""
    parts = max(1, int(min(weights, WEIGHTS_MAX) * CLAIM_PARTS))
    return WORD | (now_ms + KEPT_MS) // TIME_MS << 32 | parts << 12 | only


def weights_of(word: int) -> float:
    """Return the sum of the weights in a word about members."""
    return (word >> 12 & 0xFFFFF) / CLAIM_PARTS


def is_valid(word: int, now_ms: int) -> bool:
    """Whether a word about members still counts."""
    return (word >> 32 & 0xFFFFFFF) * TIME_MS > now_ms


def order_word(virtual_ns: int, first: Place) -> int:
    """Return the word about the first waiting request of a member with this virtual time."""
    since_ns = max(virtual_ns, first.order[0] * MS_NS)  # a time that is long past has no order when it is cut
    virtual = since_ns // VIRTUAL_NS & (1 << VIRTUAL_BITS) - 1
    return WAITS | virtual << VIRTUAL_AT | (first.order[0] & (1 << READ_BITS) - 1) << READ_AT


def precedes(other: int, own: int) -> bool:
    """Whether a request of another process precedes one here: its member is further behind, or it was read earlier."""
    behind = _difference(other >> VIRTUAL_AT, own >> VIRTUAL_AT, VIRTUAL_BITS)
    if abs(behind) > 1:
        return behind < 0
    return _difference(other >> READ_AT, own >> READ_AT, READ_BITS) < 0


def _difference(one: int, other: int, bits: int) -> int:
    """Return the difference of two times of which only the lowest bits are known."""
    half = 1 << bits - 1
    return (one - other + half & (1 << bits) - 1) - half
