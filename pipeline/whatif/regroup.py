"""Replays merged groups. They share a sensor with other sample boundaries, so samples are recomputed before the exact replay."""

import numpy as np

from pipeline.replay.decisions import Sensor as Measure
from pipeline.replay.decisions import decide
from pipeline.replay.rows import Flags, Floats, Ints, Rows, Waits


def replay(ts_ms: Ints, value: Ints, checked: Flags, bound: Floats | float, measure: Measure) -> Ints:
    """Return the throttle time in ms of every event of one sensor; events are in order of time."""
    if not len(ts_ms):
        return np.zeros(0, np.int64)
    first = sample_starts(ts_ms, measure.window_ms)
    return decide(
        _rows(ts_ms, value, checked, np.broadcast_to(np.asarray(bound, np.float64), (len(ts_ms),))[first], first), measure
    ).throttle_ms


def sample_starts(ts_ms: Ints, window_ms: int) -> Ints:
    """Return the positions of events that begin a sample: the first event, and each that comes a window after the last sample's start."""
    following = np.searchsorted(ts_ms, ts_ms + window_ms, side="left")
    starts, at = [], 0
    while at < len(ts_ms):  # one iteration per sample, not per event
        starts.append(at)
        at = int(following[at])
    return np.array(starts, np.int64)


def _rows(ts_ms: Ints, value: Ints, checked: Flags, bound: Floats, first: Ints) -> Rows:
    """Return one row per sample; columns that the replay does not use are empty."""
    count = np.diff(np.append(first, len(ts_ms)))
    number = np.arange(len(first), dtype=np.int64)
    none = np.zeros(len(first), np.int64)
    return Rows(
        group_ref=none,
        sample_index=number,
        sample_start_ms=ts_ms[first],
        last_event_ms=ts_ms[first + count - 1],
        n=count,
        count=count,
        total=np.add.reduceat(value, first),
        prior_sum=none,
        window_ms=none,
        oldest_start_ms=none,
        bound=bound,
        first_seq=first,
        last_seq=first + count - 1,
        max_observed=none.astype(np.float64),
        misplaced=np.zeros(len(first), np.bool_),
        event_at=first,
        row_of=np.repeat(number, count),
        ts_ms=ts_ms,
        value=value,
        checked=checked,
        waits=Waits.none(),
        declared={},
        lead_ns=None,
        waits_fit=lambda: False,
    )
