"""From an exceeded bound to a delay. Source: Kafka 3.8 `QuotaUtils`, `Math.round`."""

import math
from typing import Final

LONG_MAX: Final = 2**63 - 1
LONG_MIN: Final = -(2**63)
INT32_MAX: Final = 2**31 - 1


def round_half_up(value: float) -> int:
    """Return the nearest 64-bit integer, ties towards +infinity; NaN is 0, the rest saturates. Source: Java's `Math.round`."""
    if value != value:
        return 0
    if value >= LONG_MAX:
        return LONG_MAX
    if value <= LONG_MIN:
        return LONG_MIN
    floor = math.floor(value)
    return floor if value - floor < 0.5 else floor + 1


def narrow_to_int32(value: int) -> int:
    """Return the low 32 bits as a signed number: what Java's `(int)` does to a long."""
    return (value + 2**31) % 2**32 - 2**31


def throttle_time_ms(observed: float, bound: float, window_ms: int) -> int:
    """Return the delay that brings `observed` down to `bound`: X = (O - T) / T * W.

    Args:
        observed: measured rate O, units per second.
        bound: quota T in the same units.
        window_ms: span W that `observed` was measured over.

    Returns:
        Milliseconds as Kafka computes them: 64 bits, negative below the bound. The caller clamps.

    Source: KIP-13; Kafka 3.8 `QuotaUtils.throttleTime`.
    """
    if bound == 0.0:
        return _divided_by_zero(observed, bound)
    return round_half_up((observed - bound) / bound * window_ms)


def _divided_by_zero(observed: float, bound: float) -> int:
    # Java divides to an infinity or NaN where Python raises.
    if observed == 0.0 or observed != observed:
        return 0
    return LONG_MAX if (observed > 0.0) == (math.copysign(1.0, bound) > 0.0) else LONG_MIN
