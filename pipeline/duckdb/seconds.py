"""Columns of the sums by second, of which the tables are made, where sums of several databases come together."""

from typing import Final

import pyarrow as pa

from pipeline.rollup.content.columns import BOOLEAN, DOUBLE, LONG, STRING, USAGE_COUNTS

USAGE_SECONDS: Final = pa.schema(
    [
        ("hour_number", LONG),
        ("gold_client_number", LONG),
        ("api_class", STRING),
        ("second_ms", LONG),
        *((name, LONG) for name in (*USAGE_COUNTS, "connections_open", "bytes")),
    ]
)
DECISION_COUNTS: Final = ("n", "throttled_n", "violated_n", "throttle_ms_sum", "applied_ms_sum", "waited_n", "waited_ms_sum")
"""Columns of decisions that can be added."""
DECISION_SECONDS: Final = pa.schema(
    [
        ("hour_number", LONG),
        ("gold_group_number", LONG),
        ("quota_type", STRING),
        ("second_ms", LONG),
        ("units", LONG),
        *((name, LONG) for name in DECISION_COUNTS),
        ("throttle_ms_max", LONG),
        ("observed_max", DOUBLE),
        ("bound", DOUBLE),
        ("utilisation", DOUBLE),
    ]
)
WAITS: Final = pa.schema(
    [
        ("hour_number", LONG),
        ("gold_group_number", LONG),
        ("at_ms", LONG),
        ("wait_ms", LONG),
        ("applied", BOOLEAN),
        ("at_in_hour_ms", LONG),
    ]
)
