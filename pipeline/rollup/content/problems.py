"""Why a raw row cannot be counted. The texts are published in the table `quarantine`, by every engine."""

from typing import Final

LATE_MS: Final = 60_000
"""Longest time of a row outside of the hour of its file. Rotation and the flush of the last second are separate steps."""

UNKNOWN_CLIENT: Final = "client_ref is in no dim_client"
UNKNOWN_GROUP: Final = "group_ref is in no dim_group"
MISSING_VALUE: Final = "a value is missing"
NEGATIVE_COUNT: Final = "a count is below 0"
OTHER_SECOND: Final = "second_ms is not in the hour of its file"
TOO_MANY_THROTTLED: Final = "more decisions are throttled than there are"
ENDS_EARLY: Final = "the sample ends before it begins"
OTHER_SAMPLE: Final = "the sample is not in the hour of its file"
