"""How many requests of a connection may be forwarded behind unanswered ones.

Kafka reads a request when the one before it is answered, so none is processed behind one that exceeds the group's bound. Here several are
forwarded before the first is recorded, as long as all of them, and those of other connections of the group, fit its window.

Requests ahead are noted at the group only where they matter: when they exceed a small part of the room that is left.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import INT32_MAX, Mode
from proxy.session.in_flight import InFlight, produced_bytes
from proxy.session.request_context import LOGIN, PRODUCE, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.throttle_state import ThrottleState
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND

NOTED_SHARE: Final = 64
"""A connection whose requests ahead are less than this part of the room is not noted: most clients are far within their quota."""
_EXACT: Final = 2.0**24
"""Times are rounded to multiples of 1 / `_EXACT`, so that sums are exact and subtraction leaves 0."""
_OBSERVE = Mode.OBSERVE  # an Enum member is looked up by a call


class Share:
    """The usage that one connection has in flight for a group, as far as it is noted there."""

    __slots__ = ("amount", "group")

    def __init__(self) -> None:
        self.group: EnforcedGroup | None = None
        self.amount = 0.0

    def of_others(self, group: EnforcedGroup) -> float:
        """Return the usage that other connections have noted at `group`."""
        return group.pending - self.amount if group is self.group else group.pending

    def note(self, group: EnforcedGroup, amount: float) -> None:
        """Note `amount` at `group`, and nothing at other groups."""
        if group is not self.group:
            self.release()
            self.group = group
        group.pending += amount - self.amount
        self.amount = amount

    def release(self) -> None:
        """Remove the note."""
        if self.group is not None:
            self.group.pending -= self.amount
            self.group, self.amount = None, 0.0


_NOTHING: Final = Share()
"""Used by connections without a note, which most are."""


class RequestsAhead:
    """The requests ahead of one connection.

    Attributes:
        bytes: produced bytes in flight behind the first request; an upper limit.
        is_bounded: whether a quota was checked for the requests since the last `note`.
        is_noted: whether usage is noted at a group.
    """

    __slots__ = (
        "_classifier",
        "_each",
        "_in_flight",
        "_produced",
        "_producer",
        "_settle_flag",
        "_throttle",
        "_timed",
        "_timed_by",
        "bytes",
        "is_bounded",
        "is_noted",
    )

    def __init__(self, in_flight: InFlight, settle_flag: SettleFlag, throttle: ThrottleState, heads: RequestClassifier) -> None:
        self._in_flight = in_flight
        self._settle_flag = settle_flag
        self._throttle = throttle
        self._classifier = heads
        self._produced = self._timed = _NOTHING
        self._producer: RequestContext | None = None  # the last group with a bound on produced bytes
        self._timed_by: EnforcedGroup | None = None  # the last group with a bound on time
        self._each = 0.0  # the estimated percent-seconds of one request
        self.bytes = 0
        self.is_bounded = False
        self.is_noted = False

    def room_bytes(self, head: RequestContext, now_ms: int) -> int:
        """Return how many more produced bytes may be forwarded before those in flight are recorded; below 0: the window is used up."""
        group = head.client.produce(now_ms)
        if group is None or group.bound >= UNLIMITED or head.client.enforcement.mode is _OBSERVE or self._throttle.session_expiring(now_ms):
            return INT32_MAX
        self.is_bounded, self._producer = True, head
        in_flight = self._in_flight
        if len(in_flight) == 1:
            self.bytes = 0
        certain_room = group.certain_room(now_ms)  # first, since it may update the usage of other processes
        others = self._produced.of_others(group) if group.pending else 0
        room = certain_room - others
        if room < in_flight[0][2] + self.bytes:  # some of the requests ahead may have been recorded since
            ahead_bytes = self.bytes = produced_bytes(in_flight, group, now_ms)
            if room < ahead_bytes:
                return -1 if group.would_throttle_ms(ahead_bytes + others, now_ms) > 0 else 0
            return int(room - ahead_bytes)
        return int(room - in_flight[0][2] - self.bytes)

    def number(self, head: RequestContext, size: int, now_ms: int) -> int:
        """Return how many more requests may be forwarded before the time of those in flight is known; 0: the window is probably used up."""
        group = head.client.request(now_ms)
        if group is None or group.bound >= UNLIMITED or head.work is None or head.client.enforcement.mode is _OBSERVE:
            return INT32_MAX
        if head.kind == LOGIN or group.is_paced or self._throttle.session_expiring(now_ms):
            return INT32_MAX
        each = self._classifier.broker_times.estimate(head.work, size) * PERCENT_PER_NANOSECOND
        self.is_bounded, self._timed_by, self._each = True, group, ceil(each * _EXACT) / _EXACT
        certain_room = group.certain_room(now_ms)
        others = self._timed.of_others(group) if group.pending else 0
        expected = len(self._in_flight) * each
        room = certain_room - expected - others
        if room >= 0.0:
            return min(1 + int(room / each), INT32_MAX)
        return 0 if group.would_throttle_ms(expected + others, now_ms) > 0 else 1

    def passes_all(self, head: RequestContext, size: int, count: int, now_ms: int) -> bool:
        """Whether requests may be forwarded together and need no note, with nothing in flight. True: they are counted in `bytes`.

        Args:
            head: the context of each; not a fetch.
            size: the size of each in bytes.
            count: their number.
            now_ms: monotonic milliseconds.
        """
        if head.client.request(now_ms) is not None:
            return False
        ahead_bytes = 0
        if head.kind == PRODUCE:
            group = head.client.produce(now_ms)
            if group is not None and (group.pending or size * count * NOTED_SHARE > group.certain_room(now_ms)):
                return False
            ahead_bytes = size * (count - 1)
        self.bytes = ahead_bytes
        return True

    def note(self, now_ms: int) -> None:
        """Note requests ahead at their groups, where they matter, so that other connections count them."""
        self.is_bounded = False
        in_flight, producer, timed_by = self._in_flight, self._producer, self._timed_by
        if len(in_flight) < 2:
            return
        group = None if producer is None else producer.client.produce(now_ms)
        if group is not None and self.bytes:
            amount: float = in_flight[0][2] + self.bytes
            if self._produced.amount or amount * NOTED_SHARE > group.certain_room(now_ms):
                if self._produced is _NOTHING:
                    self._produced = Share()
                self._produced.note(group, amount)
                self.is_noted = self._settle_flag.needs_settle = True
        if timed_by is not None:
            amount = len(in_flight) * self._each
            if self._timed.amount or amount * NOTED_SHARE > timed_by.certain_room(now_ms):
                if self._timed is _NOTHING:
                    self._timed = Share()
                self._timed.note(timed_by, amount)
                self.is_noted = self._settle_flag.needs_settle = True

    def settle(self, now_ms: int) -> bool:
        """Update the notes after responses. Returns whether anything is still noted."""
        in_flight = self._in_flight
        if len(in_flight) < 2:
            self.release()
            return False
        if self._produced.group is not None:
            _note_again(self._produced, self._produced.group, produced_bytes(in_flight, self._produced.group, now_ms), now_ms)
        if self._timed.group is not None:
            _note_again(self._timed, self._timed.group, len(in_flight) * self._each, now_ms)
        self.is_noted = self._produced.group is not None or self._timed.group is not None
        return self.is_noted

    def release(self) -> None:
        """Remove all notes, because nothing is in flight or the connection ends."""
        self._produced.release()
        self._timed.release()
        self.is_noted = False


def _note_again(share: Share, group: EnforcedGroup, amount: float, now_ms: int) -> None:
    """Note the rest of a share where it still matters."""
    if amount * NOTED_SHARE > group.certain_room(now_ms):
        share.note(group, amount)
    else:
        share.release()
