"""What counts as a sign of a client that avoids a quota with new connections or with another client-id.

A mute applies to a connection, and a quota to a name. A client that replaces its connection has no wait, and one that replaces its
client-id has a new quota.
"""

from typing import Final

RECONNECT_MAX_MS: Final = 15_000
"""A new connection within this time after a wait counts as soon after it."""
OPENED_MIN: Final = 5
TIMES_MORE: Final = 3
SUCCESSOR_GAP_MAX_MS: Final = 60_000
"""Longest time from a throttled client-id's last activity to the first activity of a client-id that counts as its successor."""
OVERLAP_MAX_MS: Final = SUCCESSOR_GAP_MAX_MS // 6
"""Longest overlap of a client-id and its successor."""
BEFORE_MAX: Final = 16
"""Number of client-ids, latest activity first, that are candidates for each new client-id."""
ANONYMOUS: Final = "User:ANONYMOUS"
