"""The most that the live page keeps in memory; the budget of the process counts it."""

from typing import Final

HISTORY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the history of all groups."""
VIEWERS_MAX: Final = 16
VIEWER_BYTES_MAX: Final = 256 * 1024
"""Of the connection of a viewer that does not read."""
LIVE_PAGE_BYTES_MAX: Final = HISTORY_BYTES_MAX + VIEWERS_MAX * VIEWER_BYTES_MAX
