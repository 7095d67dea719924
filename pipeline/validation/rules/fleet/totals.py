"""What a member of a fleet used of a group by its own files, as a function of time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.replay.rows import Floats, Ints
from pipeline.validation.rules.workers.group_histories import GroupHistory, Skip, Timeline, next_ms, timelines_of

_Part = tuple[Ints, Floats, Floats]
"""Times, and two amounts at each of them."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Usage of a group since the beginning of the files.

    Some usage is taken back later, and it may or may not have been published meanwhile. So there are two totals.

    Attributes:
        ts_ms: times, ascending.
        highest: the highest that can have been published by then.
        lasting: what was certainly published some time later.
    """

    ts_ms: Ints
    highest: Floats
    lasting: Floats

    def highest_at(self, at_ms: Ints) -> Floats:
        """Return `highest` at these times."""
        found: Floats = np.append(0.0, self.highest)[np.searchsorted(self.ts_ms, at_ms, side="right")]
        return found

    def lasting_at(self, at_ms: Ints) -> Floats:
        """Return `lasting` at these times."""
        found: Floats = np.append(0.0, self.lasting)[np.searchsorted(self.ts_ms, at_ms, side="right")]
        return found

    def since_ms(self, totals: Floats) -> Ints:
        """Return for each total the time at which `lasting` exceeded it; a very late one if it never did."""
        found: Ints = np.append(self.ts_ms, np.iinfo(np.int64).max)[np.searchsorted(self.lasting, totals, side="right")]
        return found


def shared_claim(history: GroupHistory) -> Skip | None:
    """Return when a group began to share its usage with the fleet; None: it did not.

    A group of a broker is shared as soon as the node id is known, and then begins to use another row.
    """
    claims = history.claims
    return claims[-1] if len(claims) > history.is_renamed else None


def is_shared(history: GroupHistory) -> bool:
    """Whether the fleet shares a group: that of the cluster, or of a broker whose node id is known."""
    if history.identity is None:
        return False
    _, scope, node_id, *_ = history.identity
    return scope == "cluster" or (scope == "broker" and node_id is not None)


def totals_of(histories: Sequence[GroupHistory], history_ms: int, offset_ms: int) -> Totals:
    """Return the totals of one incarnation of a member in one group.

    Args:
        histories: those of its workers.
        history_ms: usage of this time before a claim is published together with it.
        offset_ms: is added to monotonic times.
    """
    parts: list[_Part] = []
    for worker in sorted({history.run.worker for history in histories}):
        its = [history for history in histories if history.run.worker == worker]
        parts.append(_of_worker(its, history_ms))
    ts_ms, (highest, total) = _in_order(parts)
    lasting = np.minimum.accumulate(np.cumsum(total)[::-1])[::-1]
    return Totals(ts_ms + offset_ms, np.cumsum(highest), np.maximum(lasting, 0.0))


def sum_of(some: Sequence[Totals]) -> Totals:
    """Return the sum of the totals of several incarnations."""
    parts = [(one.ts_ms, np.diff(one.highest, prepend=0.0), np.diff(one.lasting, prepend=0.0)) for one in some]
    ts_ms, (highest, lasting) = _in_order(parts)
    return Totals(ts_ms, np.cumsum(highest), np.cumsum(lasting))


def _of_worker(histories: Sequence[GroupHistory], history_ms: int) -> _Part:
    """Return the times, and the increases of the highest total and of the total, of one worker over all its runs."""
    lines = [
        (history, claim, _shared_line(history, claim, histories, history_ms)) for history in histories if (claim := shared_claim(history))
    ]
    lines.sort(key=lambda line: (line[1].ts_ms, line[1].seq))
    times, amounts, unclear, before = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0)], 0.0
    for history, claim, line in lines:
        times.append(np.append(claim.ts_ms, line.ts_ms))
        total = np.append(float(line.base), line.total)
        amounts.append(np.append(max(0.0, line.base - before), np.diff(total)))
        unclear.append(np.append(0.0 if line.is_exact else _used_in(history, claim.ts_ms), np.zeros(len(line.ts_ms))))
        before = float(total[-1])
    used = np.concatenate(amounts)
    highest = np.maximum.accumulate(np.maximum(np.cumsum(used + np.concatenate(unclear)), 0.0))
    return np.maximum.accumulate(np.concatenate(times)), np.diff(highest, prepend=0.0), used


def _used_in(history: GroupHistory, ts_ms: int) -> float:
    """Return the own usage of a millisecond in which the group changed its row: it was published in the row before or in the new one."""
    values = history.value[history.is_own & (history.ts_ms == ts_ms)]
    return float(values[values > 0].sum())


def _shared_line(history: GroupHistory, claim: Skip, histories: Sequence[GroupHistory], history_ms: int) -> Timeline:
    assert history.claims[-1] is claim
    return timelines_of(history, next_ms(history, histories), history_ms)[-1]


def _in_order(parts: Sequence[_Part]) -> tuple[Ints, tuple[Floats, Floats]]:
    """Return all times in order, and the increases at them."""
    ts_ms = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    order = np.argsort(ts_ms, kind="stable")
    first, second = (np.concatenate([np.zeros(0), *(part[at] for part in parts)])[order] for at in (1, 2))
    return ts_ms[order], (first, second)
