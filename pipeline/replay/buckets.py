"""Recomputes the token buckets of controller mutations, one file set at a time. Source: Kafka 3.8 `TokenBucket`.

Every step records the balance before it and the time that this balance refers to. Each step can therefore be recomputed by itself: the
tokens added since then, the tokens taken, the balance left, and the wait. A separate rule checks that each step begins with the balance
that the step before left. Doubles are added in the order of `quota.sensor`.
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
"""Columns of `events` that `steps_of` needs."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of buckets, sorted by group and sequence number.

    Attributes:
        permits: mutations requested; negative when they are returned.
        before, since_ms: balance before the step, and the time in ms that it refers to; NaN and 0 when they are not recorded.
        after: balance after the step.
        num_samples, window_ms: parameters of the bucket; its capacity is the amount that its bound gives in num_samples windows.
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
        """Capacity of each step's bucket in mutations."""
        with np.errstate(over="ignore"):
            burst: Floats = self.num_samples * (self.window_ms / 1_000.0) * self.bound
        return burst

    @property
    def counts(self) -> Flags:
        """Whether each step took or returned anything."""
        counts: Flags = (self.kind != REFUSED) & (self.kind != ASKED)
        return counts

    @property
    def is_known(self) -> Flags:
        """Whether each step's balance was recorded. A machine failure may have lost it."""
        known: Flags = ~np.isnan(self.before)
        return known


@dataclass(frozen=True, slots=True)
class RecomputedSteps:
    """The recomputed values of each step.

    Attributes:
        balance: tokens in the bucket at the time of the step.
        after: balance after the step.
        throttle_ms: throttle time in ms, truncated to 32 bits as in Kafka.
    """

    balance: Floats
    after: Floats
    throttle_ms: Ints


def steps_of(events: pa.Table, num_samples: Ints, window_ms: Ints) -> Steps:
    """Return the steps in rows of EVENTS.

    Args:
        events: rows with the columns of EVENTS.
        num_samples, window_ms: parameters by group number; 0 for groups without a bucket.
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


def work_out(steps: Steps) -> RecomputedSteps:
    """Recompute every step."""
    burst = steps.burst
    with np.errstate(over="ignore", invalid="ignore"):
        balance = np.minimum(burst, steps.before + steps.bound * ((steps.ts_ms - steps.since_ms) / 1_000.0))
        after = np.where(steps.counts, np.minimum(burst, balance - steps.permits), balance)
    waited_for = np.where(steps.kind == REFUSED, balance, np.where(steps.kind == OWED, after, 0.0))
    return RecomputedSteps(balance, after, _waits(waited_for, steps.bound))


def _waits(balance: Floats, bound: Floats) -> Ints:
    out = np.zeros(len(balance), np.int64)
    at = np.flatnonzero(balance < 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        exact = -balance[at] / bound[at] * 1_000.0
    plain = np.abs(exact) < INT32_MAX
    floor = np.floor(exact[plain])
    out[at[plain]] = floor + (exact[plain] - floor >= 0.5)
    for step in at[~plain]:  # a bound of 0, or a wait above 24 days
        wait_ms = token_throttle_time_ms(float(balance[step]), float(bound[step]))
        out[step] = narrow_to_int32(wait_ms)
    return out
