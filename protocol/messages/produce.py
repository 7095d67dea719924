"""Produce responses (0): where the throttle time stands and whether node endpoints follow (KIP-951)."""

from protocol.api_keys import ApiVersion
from protocol.primitives import Buffer


def walk_produce(api: ApiVersion, data: Buffer, at: int, end: int) -> tuple[int, bool]:
    """Walk the whole response, v9 or newer, that lies in `data` from `at` (its length) to `end`.

    Returns:
        Where throttle_time_ms stands, counted from `at`, and whether node endpoints follow it.

    Raises:
        BadResponseError: the frame does not read as its version says.
    """
    raise NotImplementedError
