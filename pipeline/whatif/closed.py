"""The closed loop: clients that wait longer send later. Each connection is played again with new waits in place of the recorded ones.

The pause between the end of a wait and the next request is kept. An event before the end of a wait did not depend on it: its request was in
flight, or it is the rest of a response. Its distance from the event before is kept. When a connection has not sent everything by the end of
the record, the rest counts as not sent.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.replay.decisions import NO_CAP
from pipeline.replay.decisions import Sensor as Measure
from pipeline.replay.rows import Flags, Floats, Ints
from quota.groups.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND

Answer = tuple[int, bool]
"""The wait in ms, and whether the event passed."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Attributes:
        throttle_ms: throttle time of every event that was sent or refused, in this order.
        units_sent, units_offered: units sent by the end of the record, and in total.
    """

    throttle_ms: Ints
    units_sent: int
    units_offered: int


@dataclass(slots=True)
class _Line:
    """A connection that is played again.

    Attributes:
        pause_ms: pause before each event: after the end of the wait when `waits`, else after the event before it.
        waits: whether each event came after the wait before it.
        free_ms: end of the latest wait.
    """

    first_ms: int
    events: list[int]
    pause_ms: list[int]
    waits: list[bool]
    free_ms: int = 0

    def next_ms(self, at: int, now_ms: int) -> int:
        """Return the time of event `at` in ms, when the event before it is at `now_ms`."""
        return (self.free_ms if self.waits[at] else now_ms) + self.pause_ms[at]


def play(
    ts_ms: Ints,
    value: Ints,
    waited_ms: Ints,
    connection: Ints,
    decide: Callable[[int, int], Answer],
    *,
    checked: Flags | None = None,
    is_known: bool = True,
    passes_later: bool = False,
    end_ms: int | None = None,
) -> Replayed:
    """Replay the connections of one group.

    Args:
        ts_ms, value: time and amount of each event, in order of time.
        waited_ms: recorded wait of the client.
        connection: number of the connection.
        decide: takes an event's position and the time in ms. A refused event is retried after the wait.
        checked: False for events without a check against the bound; None when all were checked.
        is_known: False when each connection stands for several real ones. One may then wait while another continues, so only events
            without a check count as in flight.
        passes_later: the wait comes before an event passes, instead of after it. An event that passes after the end is not sent.
        end_ms: end of the record; None: the last event.
    """
    checked = np.ones(len(ts_ms), np.bool_) if checked is None else checked
    is_checked = checked.tolist()
    lines = _lines(ts_ms, waited_ms, connection, checked, is_known=is_known)
    end_ms = int(ts_ms.max(initial=0)) if end_ms is None else end_ms
    due = [(line.first_ms, line.events[0], number, 0) for number, line in enumerate(lines)]  # events of one ms in recorded order
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
        if not passes_later or now_ms + wait_ms <= end_ms:
            sent.append(event)
        line = lines[number]
        line.free_ms = max(line.free_ms, now_ms + wait_ms) if is_known or not is_checked[event] else now_ms + wait_ms
        if at + 1 < len(line.events):
            heapq.heappush(due, (line.next_ms(at + 1, now_ms), line.events[at + 1], number, at + 1))
    return Replayed(np.array(waits, np.int64), int(value[np.array(sent, np.int64)].sum()), int(value.sum()))


def sensor_under(bound: float | Floats, measure: Measure, value: Ints, checked: Flags) -> Callable[[int, int], Answer]:
    """Return the function `decide` for `play`: a sensor with this bound, or with the bound of each event."""
    cap_ms = None if measure.cap_ms == NO_CAP else measure.cap_ms
    bounds = None if isinstance(bound, float) else bound.tolist()
    first = bound if isinstance(bound, float) else float(bound[0])
    group = QuotaGroup({}, first, num_samples=measure.num_samples, window_ms=measure.window_ms, cap_ms=cap_ms)
    amounts = (value * PERCENT_PER_NANOSECOND if measure.is_request_time else value.astype(np.float64)).tolist()
    is_checked = checked.tolist()

    def decide(event: int, now_ms: int) -> Answer:
        if bounds is not None and bounds[event] != group.bound:
            group.update_bound(bounds[event])
        if is_checked[event]:
            return max(group.record(amounts[event], now_ms), 0), True
        group.record_unchecked(amounts[event], now_ms)
        return 0, True

    return decide


def _lines(ts_ms: Ints, waited_ms: Ints, connection: Ints, checked: Flags, *, is_known: bool) -> list[_Line]:
    order = np.argsort(connection, kind="stable")
    ends = np.flatnonzero(np.diff(connection[order])) + 1
    return [_line(events, ts_ms[events], waited_ms[events], checked[events], is_known=is_known) for events in np.split(order, ends)]


def _line(events: Ints, ts_ms: Ints, waited_ms: Ints, checked: Flags, *, is_known: bool) -> _Line:
    """Return one connection of the record, without its waits."""
    judged = np.maximum.accumulate(np.where(checked, np.arange(len(events)), 0))[:-1]
    ends_ms = (ts_ms + waited_ms)[:-1]
    free_ms = np.maximum.accumulate(ends_ms) if is_known else np.maximum(ends_ms, ends_ms[judged])
    is_later = ts_ms[1:] >= free_ms
    waits, pause_ms = np.ones(len(events), np.bool_), np.zeros(len(events), np.int64)
    # the rest of a response comes together with its beginning, unless `delay` held it back
    waits[1:] = np.where(checked[1:], is_later | (not is_known), is_later & (waited_ms[judged] > 0))
    pause_ms[1:] = np.where(waits[1:], np.maximum(ts_ms[1:] - free_ms, 0), np.diff(ts_ms))
    return _Line(int(ts_ms[0]), events.tolist(), pause_ms.tolist(), waits.tolist())
