"""How many requests of a connection may go on behind those that have no answer yet.

Kafka reads a request when the one before it is answered, so none goes on behind one that brings the group over its bound. Here several go
on before the first is judged, as long as all of them together, and what other connections of the group have sent ahead, fit its window.

What is sent ahead is noted at the group only where that matters: where it is more than a small part of the room that is left.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import INT32_MAX, Mode
from proxy.session.attention import Attention
from proxy.session.in_flight import InFlight, produced_bytes
from proxy.session.request_context import LOGIN, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.throttle.throttle_state import ThrottleState
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND

NOTED_SHARE: Final = 64
"""One connection that sends ahead less than this part of the room is not noted: most clients are far within their quota."""
_EXACT: Final = 2.0**24
"""Times are noted in whole parts of this, so that sums of them are exact and what is taken back leaves nothing."""
_OBSERVE = Mode.OBSERVE  # a member of an Enum is found by a call


class Share:
    """What one connection has under way for a group, as far as it is noted there."""

    __slots__ = ("amount", "group")

    def __init__(self) -> None:
        self.group: EnforcedGroup | None = None
        self.amount = 0.0

    def of_others(self, group: EnforcedGroup) -> float:
        """Return what other connections have noted at `group`."""
        return group.pending - self.amount if group is self.group else group.pending

    def note(self, group: EnforcedGroup, amount: float) -> None:
        """Let so much be noted at `group`, and nothing elsewhere."""
        if group is not self.group:
            self.release()
            self.group = group
        group.pending += amount - self.amount
        self.amount = amount

    def release(self) -> None:
        """Nothing is under way any more."""
        if self.group is not None:
            self.group.pending -= self.amount
            self.group, self.amount = None, 0.0


_NOTHING: Final = Share()
"""Of connections that never had anything noted, as most."""


class RequestsAhead:
    """Those of one connection.

    Attributes:
        bytes: produced bytes in flight behind the first request there; at least as many as there are.
        is_bounded: whether a quota was asked for the requests since the last `note`.
        is_noted: whether something is noted at a group.
    """

    __slots__ = (
        "_attention",
        "_classifier",
        "_each",
        "_in_flight",
        "_produced",
        "_producer",
        "_throttle",
        "_timed",
        "_timed_by",
        "bytes",
        "is_bounded",
        "is_noted",
    )

    def __init__(self, in_flight: InFlight, attention: Attention, throttle: ThrottleState, heads: RequestClassifier) -> None:
        self._in_flight = in_flight
        self._attention = attention
        self._throttle = throttle
        self._classifier = heads
        self._produced = self._timed = _NOTHING
        self._producer: RequestContext | None = None  # the last one whose produced bytes have a bound
        self._timed_by: EnforcedGroup | None = None  # the last one that bounds their time
        self._each = 0.0  # percent-seconds that one of them probably costs
        self.bytes = 0
        self.is_bounded = False
        self.is_noted = False

    def room_bytes(self, head: RequestContext, now_ms: int) -> int:
        """How many more produced bytes may go before those in flight are judged; below 0: those are all that the window can hold."""
        group = head.client.produce(now_ms)
        if group is None or group.bound >= UNLIMITED or head.client.enforcement.mode is _OBSERVE or self._throttle.session_expiring(now_ms):
            return INT32_MAX
        self.is_bounded, self._producer = True, head
        in_flight = self._in_flight
        if len(in_flight) == 1:
            self.bytes = 0
        certain_room = group.certain_room(now_ms)  # first: it may learn what other processes have under way
        others = self._produced.of_others(group) if group.pending else 0
        room = certain_room - others
        if room < in_flight[0][2] + self.bytes:  # some of what went ahead may have been judged since
            ahead_bytes = self.bytes = produced_bytes(in_flight, group, now_ms)
            if room < ahead_bytes:
                return -1 if group.would_throttle_ms(ahead_bytes + others, now_ms) > 0 else 0
            return int(room - ahead_bytes)
        return int(room - in_flight[0][2] - self.bytes)

    def number(self, head: RequestContext, size: int, now_ms: int) -> int:
        """How many more may go before the time of those in flight is known; 0: as far as is known it is all that the window can hold."""
        group = head.client.request(now_ms)
        if group is None or group.bound >= UNLIMITED or head.work is None or head.client.enforcement.mode is _OBSERVE:
            return INT32_MAX
        if head.kind == LOGIN or self._throttle.session_expiring(now_ms):
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

    def note(self, now_ms: int) -> None:
        """Requests have gone ahead: let the other connections of their groups count them, where that matters."""
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
                self.is_noted = self._attention.needs_settle = True
        if timed_by is not None:
            amount = len(in_flight) * self._each
            if self._timed.amount or amount * NOTED_SHARE > timed_by.certain_room(now_ms):
                if self._timed is _NOTHING:
                    self._timed = Share()
                self._timed.note(timed_by, amount)
                self.is_noted = self._attention.needs_settle = True

    def settle(self, now_ms: int) -> bool:
        """Answers may have come: note what is under way now. Returns whether anything is noted still."""
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
        """Nothing is under way any more, or the connection ends."""
        self._produced.release()
        self._timed.release()
        self.is_noted = False


def _note_again(share: Share, group: EnforcedGroup, amount: float, now_ms: int) -> None:
    """Note what is left of a share where it matters still."""
    if amount * NOTED_SHARE > group.certain_room(now_ms):
        share.note(group, amount)
    else:
        share.release()
