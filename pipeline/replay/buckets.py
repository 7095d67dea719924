"""Token buckets of controller mutations worked out again, a file at a time. Source: Kafka 3.8 `TokenBucket`.

Every step says which balance it found and when that was reckoned, so each is worked out on its own: what came in since, what the step took,
what it left, and the wait. That a step found what the one before it left makes a chain of them. Doubles, in the order of `quota.sensor`.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metering_format.event_kinds import ASKED, CHARGED, OF_BUCKETS, OWED, REFUSED, SETTLED
from pipeline.replay.rows import Flags, Floats, Ints
from quota.groups.mutation_group import token_throttle_time_ms
from quota.throttle import INT32_MAX, narrow_to_int32

KIND_NAMES: Final = {CHARGED: "charged", REFUSED: "refused", OWED: "owed", SETTLED: "settled", ASKED: "asked"}
COLUMNS: Final = [
    "group_ref",
    "seq",
    "ts_ms",
    "kind",
    "value",
    "observed",
    "bound",
    "throttle_ms",
    "applied_ms",
    "before",
    "since_ms",
]
"""Of `events`, for `steps_of`."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of buckets, groups apart and each in decision order.

    Attributes:
        permits: mutations asked for; given back where negative.
        before, since_ms: the balance that was found, and when it had been reckoned; NaN where the files do not tell.
        after: the balance that was left.
        num_samples, window_ms: of its bucket: as much as comes in while they last is what it holds.
    """

    group_ref: Ints
    seq: Ints
    ts_ms: Ints
    kind: Ints
    permits: Ints
    before: Floats
    since_ms: Ints
    after: Floats
    bound: Floats
    throttle_ms: Ints
    applied_ms: Ints
    num_samples: Ints
    window_ms: Ints

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def burst(self) -> Floats:
        """What each bucket holds at most."""
        with np.errstate(over="ignore"):
            burst: Floats = self.num_samples * (self.window_ms / 1_000.0) * self.bound
        return burst

    @property
    def counts(self) -> Flags:
        """Whether a step took, or gave back, anything."""
        counts: Flags = (self.kind != REFUSED) & (self.kind != ASKED)
        return counts

    @property
    def is_known(self) -> Flags:
        """Whether the files tell which balance was found: a machine that broke down may have lost that."""
        known: Flags = ~np.isnan(self.before)
        return known


@dataclass(frozen=True, slots=True)
class Worked:
    """What each step should have been.

    Attributes:
        balance: what the bucket held when it was asked.
        after: what it should have left.
        throttle_ms: how long should be waited: 32 bits of it, as in Kafka.
    """

    balance: Floats
    after: Floats
    throttle_ms: Ints


def steps_of(events: pa.Table, num_samples: Ints, window_ms: Ints) -> Steps:
    """Return the steps among rows of EVENTS.

    Args:
        num_samples, window_ms: by group_ref; 0 for groups that are no bucket.
    """
    kind = events.column("kind").to_numpy().astype(np.int64)
    column: dict[str, NDArray[Any]] = {name: events.column(name).to_numpy() for name in COLUMNS if name not in ("before", "since_ms")}
    before = events.column("before").to_numpy(zero_copy_only=False).astype(np.float64)  # null becomes NaN
    since_ms = events.column("since_ms").fill_null(0).to_numpy().astype(np.int64)
    at = np.flatnonzero(np.isin(kind, OF_BUCKETS))
    at = at[np.lexsort((column["seq"][at], column["group_ref"][at]))]
    whole = {name: column[name][at].astype(np.int64) for name in ("group_ref", "seq", "ts_ms", "throttle_ms", "applied_ms")}
    refs = whole["group_ref"]
    return Steps(
        **whole,
        kind=kind[at],
        permits=column["value"][at].astype(np.int64),
        before=before[at],
        since_ms=since_ms[at],
        after=column["observed"][at].astype(np.float64),
        bound=column["bound"][at].astype(np.float64),
        num_samples=num_samples[refs],
        window_ms=window_ms[refs],
    )


def work_out(steps: Steps) -> Worked:
    """Take every step again."""
    burst = steps.burst
    with np.errstate(over="ignore", invalid="ignore"):
        balance = np.minimum(burst, steps.before + steps.bound * ((steps.ts_ms - steps.since_ms) / 1_000.0))
        after = np.where(steps.counts, np.minimum(burst, balance - steps.permits), balance)
    waited_for = np.where(steps.kind == REFUSED, balance, np.where(steps.kind == OWED, after, 0.0))
    return Worked(balance, after, _waits(waited_for, steps.bound))


def _waits(balance: Floats, bound: Floats) -> Ints:
    out = np.zeros(len(balance), np.int64)
    at = np.flatnonzero(balance < 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        exact = -balance[at] / bound[at] * 1_000.0
    plain = np.abs(exact) < INT32_MAX
    floor = np.floor(exact[plain])
    out[at[plain]] = floor + (exact[plain] - floor >= 0.5)
    for step in at[~plain]:  # a bound of 0, or a wait of more than 24 days
        wait_ms = token_throttle_time_ms(float(balance[step]), float(bound[step]))
        out[step] = narrow_to_int32(wait_ms)
    return out
