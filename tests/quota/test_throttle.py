"""The throttle time follows from the observed rate and the quota."""

import pytest

from quota.throttle import LONG_MAX, LONG_MIN, narrow_to_int32, round_half_up, throttle_time_ms


@pytest.mark.parametrize(
    ("observed", "bound", "expected_ms"),
    [
        pytest.param(100.0, 100.0, 0, id="exactly-at-quota"),
        pytest.param(200.0, 100.0, 11_000, id="twice-the-quota-waits-one-window"),
        pytest.param(50.0, 100.0, -5_500, id="below-the-quota-is-negative"),
        pytest.param(5.0, 0.0, LONG_MAX, id="a-bound-of-zero-is-for-ever"),
        pytest.param(0.0, 0.0, 0, id="nothing-of-nothing"),
        pytest.param(-1.0, 0.0, LONG_MIN, id="less-than-nothing"),
        pytest.param(5.0, -0.0, LONG_MIN, id="java-knows-a-negative-zero"),
        pytest.param(5.0, float("nan"), 0, id="nan"),
    ],
)
def test_throttle_time(observed: float, bound: float, expected_ms: int) -> None:
    """The throttle time is (observed - quota) / quota x window, rounded as in Kafka."""
    assert throttle_time_ms(observed, bound, window_ms=11_000) == expected_ms


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.5, 1),
        (-0.5, 0),
        (1.5, 2),
        (-1.5, -1),
        (2.5, 3),
        (0.49999999999999994, 0),
        (float("nan"), 0),
        (float("inf"), LONG_MAX),
        (float("-inf"), LONG_MIN),
        (1e19, LONG_MAX),
        (-1e19, LONG_MIN),
        (4503599627370497.0, 4503599627370497),
    ],
)
def test_round_half_up(value: float, rounded: int) -> None:
    """Rounding takes ties towards +infinity, NaN to 0, and saturates at the range of a long."""
    assert round_half_up(value) == rounded


@pytest.mark.parametrize(
    ("value", "narrowed"),
    [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (LONG_MAX, -1), (LONG_MIN, 0), (9_999_990_000, 1_410_055_408), (-5, -5)],
)
def test_narrow_to_int32(value: int, narrowed: int) -> None:
    """Narrowing keeps the low 32 bits with their sign, as in Java."""
    assert narrow_to_int32(value) == narrowed
