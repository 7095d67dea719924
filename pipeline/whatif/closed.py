"""The closed loop: clients that wait send later. Each connection is played again, its recorded waits taken out, the new ones put in.

What stays as recorded is how long a client thinks between the end of its wait and its next request. A connection that would still be
sending when the record ends has not sent the rest: that part is counted, not guessed.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.replay.decisions import NO_CAP
from pipeline.replay.decisions import Sensor as Measure
from pipeline.replay.rows import Flags, Ints
from quota.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND

Answer = tuple[int, bool]
"""How long to wait, in ms, and whether the event passed."""


@dataclass(frozen=True, slots=True)
class Played:
    """What happened.

    Attributes:
        throttle_ms: of every event that was sent or refused, in that order.
        units_sent, units_offered: until the record ended, and in all.
    """

    throttle_ms: Ints
    units_sent: int
    units_offered: int


def play(ts_ms: Ints, value: Ints, waited_ms: Ints, connection: Ints | None, decide: Callable[[int, int], Answer]) -> Played:
    """Let the connections of one group send again; events come in the order of time.

    Args:
        decide: takes an event's number and the time in ms; what is refused is asked for again after the wait.
    """
    lines = _lines(ts_ms, waited_ms, np.zeros(len(ts_ms), np.int64) if connection is None else connection)
    end_ms = int(ts_ms[-1]) if len(ts_ms) else 0
    due = [(first_ms, events[0], number, 0) for number, (first_ms, events, _) in enumerate(lines)]  # at one time in the order of the record
    heapq.heapify(due)
    waits: list[int] = []
    sent: list[int] = []
    while due:
        now_ms, event, number, at = heapq.heappop(due)
        if now_ms > end_ms:
            break
        wait_ms, is_sent = decide(event, now_ms)
        waits.append(wait_ms)
        if not is_sent:
            heapq.heappush(due, (now_ms + max(wait_ms, 1), event, number, at))
            continue
        sent.append(event)
        _, events, think_ms = lines[number]
        if at + 1 < len(events):
            heapq.heappush(due, (now_ms + wait_ms + think_ms[at + 1], events[at + 1], number, at + 1))
    return Played(np.array(waits, np.int64), int(value[np.array(sent, np.int64)].sum()), int(value.sum()))


def sensor_under(bound: float, measure: Measure, value: Ints, checked: Flags) -> Callable[[int, int], Answer]:
    """Return what decides the events of one group by a sensor with this bound, as `play` wants it."""
    cap_ms = None if measure.cap_ms == NO_CAP else measure.cap_ms
    group = QuotaGroup({}, bound, num_samples=measure.num_samples, window_ms=measure.window_ms, cap_ms=cap_ms)
    amounts = (value * PERCENT_PER_NANOSECOND if measure.is_request_time else value.astype(np.float64)).tolist()
    is_checked = checked.tolist()

    def decide(event: int, now_ms: int) -> Answer:
        if is_checked[event]:
            return max(group.record(amounts[event], now_ms), 0), True
        group.record_unchecked(amounts[event], now_ms)
        return 0, True

    return decide


def _lines(ts_ms: Ints, waited_ms: Ints, connection: Ints) -> list[tuple[int, list[int], list[int]]]:
    """Of each connection: when it begins, its events, and how long it thinks before each."""
    order = np.argsort(connection, kind="stable")
    ends = np.flatnonzero(np.diff(connection[order])) + 1
    lines = []
    for events in np.split(order, ends):
        if not len(events):
            continue
        think = np.zeros(len(events), np.int64)
        think[1:] = np.maximum(ts_ms[events[1:]] - ts_ms[events[:-1]] - waited_ms[events[:-1]], 0)
        lines.append((int(ts_ms[events[0]]), events.tolist(), think.tolist()))
    return lines
