"""Which earlier file sets of a run can affect the verdict of a file set."""

from collections.abc import Sequence
from typing import Final

from metering_format.manifest import Manifest

WINDOWS: Final = 4
"""A file set is judged with the decisions of so many windows before it."""

Work = tuple[Manifest, ...]
"""A file set to judge, the last one, after the earlier ones of its run that can affect it."""


def warm_up_span_ms(manifest: Manifest) -> int:
    """Return for how long decisions can affect those after them, with the settings of a file set."""
    return WINDOWS * (manifest.num_samples + 1) * manifest.window_ms


def work_of(run: Sequence[Manifest], at: int, span_ms: int) -> Work:
    """Return the work for the file set at a position of a run.

    Args:
        run: the file sets of the run, in decision order.
        at: position of the file set to judge.
        span_ms: the longest span of the run.
    """
    since_ms, first = run[at].first_ts_ms - span_ms, at
    while first > 0 and run[first - 1].last_ts_ms > since_ms:
        first -= 1
    return tuple(run[min(first, max(at - 1, 0)) : at + 1])
