"""Forwarded requests whose connection has ended before their responses. They still count for quotas.

Produced bytes, mutations and time are recorded when the connection ends. The bytes of a fetch are known only from its
response, so that is still followed, for as long as the broker's side of the connection lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from proxy.enforcement.groups.enforced_groups import EnforcedGroup, ThrottlingGroup
from proxy.session.in_flight import InFlight
from proxy.session.mutations.pending import PendingMutation
from proxy.session.request_context import FETCH, PRODUCE, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.throttle.throttle_state import ThrottleState
from quota.request_time import PERCENT_PER_NANOSECOND

_HEAD = Struct(">ii")  # size, correlation id


class UnansweredRequests:
    """The unanswered requests of one connection that has ended.

    Args:
        in_flight: requests without an answer, oldest first.
        throttle: receives the verdicts, which are left to the groups.
        is_timed: whether the time of requests is recorded.
    """

    __slots__ = ("_classifier", "_in_flight", "_is_timed", "_skip_bytes", "_tail", "_throttle")

    def __init__(self, in_flight: InFlight, throttle: ThrottleState, heads: RequestClassifier, *, is_timed: bool) -> None:
        self._in_flight = in_flight
        self._throttle = throttle
        self._classifier = heads
        self._is_timed = is_timed
        self._skip_bytes = 0
        self._tail = b""

    def record(self, now_ms: int, *, unfinished: int) -> None:
        """Record what is known of each request.

        Args:
            now_ms: monotonic milliseconds.
            unfinished: number of the last requests that were not sent whole: the broker does not process them.
        """
        complete = len(self._in_flight) - unfinished
        for at, (correlation_id, head, size, _, _) in enumerate(self._in_flight):
            if at >= complete:
                return
            if correlation_id is None:
                continue
            head.count(1, size, 0, size if head.kind == PRODUCE else 0)
            if self._is_timed:
                self._record_time(head, size, now_ms)
            if head.kind == PRODUCE:
                self._record_produced(head, size, now_ms)
            elif isinstance(head.ticket, PendingMutation):
                self._throttled(head, head.ticket.group, head.ticket.abandon(now_ms), now_ms)

    def _record_produced(self, head: RequestContext, size: int, now_ms: int) -> None:
        client = head.client
        group = client.produce(now_ms)
        if group is not None:
            self._recorded(head, group, size, group.record(size, now_ms), now_ms, client.produce_throttled)

    def _record_time(self, head: RequestContext, size: int, now_ms: int) -> None:
        """Charge the estimated time of a request, as far as it is known for its kind."""
        client = head.client
        if head.work is None:
            return
        charged_ns = int(self._classifier.broker_times.estimate(head.work, size))
        head.count_time(charged_ns)
        group = client.request(now_ms)
        if group is None:
            if client.is_exempt:
                client.exempt(charged_ns, now_ms)
            return
        throttle_ms = group.record(charged_ns * PERCENT_PER_NANOSECOND, now_ms)
        self._recorded(head, group, charged_ns, throttle_ms, now_ms, client.request_throttled)

    def _recorded(
        self,
        head: RequestContext,
        group: EnforcedGroup,
        value: int,
        throttle_ms: int,
        now_ms: int,
        count: Callable[[EnforcedGroup, int, int], None],
    ) -> None:
        """Meter a verdict, count it with `count`, and leave the throttle to the next connection."""
        heads, throttle_ms = self._classifier, max(0, throttle_ms)
        if heads.meter is not None and group.is_paced:  # its reservation ended with the connection
            heads.meter.record_unchecked(group, value, now_ms, heads.number, head.index)
        elif heads.meter is not None:
            applied_ms = 0 if head.client.enforcement.only_observes else throttle_ms
            heads.meter.record(group, value, throttle_ms, applied_ms, now_ms, heads.number, head.index)
            if throttle_ms and head.cell is not None:
                head.cell.throttled(throttle_ms, waits=bool(applied_ms))
        self._throttled(head, group, throttle_ms, now_ms)
        if throttle_ms > 0:
            count(group, throttle_ms, now_ms)

    def _throttled(self, head: RequestContext, group: ThrottlingGroup, throttle_ms: int, now_ms: int) -> None:
        if throttle_ms > 0:
            self._throttle.judge_gone(head.client, throttle_ms, group, now_ms)

    # --- responses to fetches

    def follow(self, skip_bytes: int, tail: bytes) -> None:
        """Begin to follow the broker's bytes.

        Args:
            skip_bytes: number of bytes that belong to a response that was recorded.
            tail: the available bytes of the next response.
        """
        self._skip_bytes, self._tail = skip_bytes, tail

    def scan(self, data: bytes, now_ms: int) -> None:
        """Scan bytes of the broker, and record the bytes of fetches. Invalid bytes are ignored."""
        data, at = self._tail + data, self._skip_bytes
        while self._in_flight and len(data) - at >= RESPONSE_HEAD_BYTES:
            expected, head, _, _, _ = self._in_flight.popleft()
            if expected is None:
                continue
            size, correlation_id = _HEAD.unpack_from(data, at)
            if correlation_id != expected or size < LENGTH_BYTES:
                self._in_flight.clear()
                return
            if head.kind == FETCH:
                self._record_fetched(head, size, now_ms)
            at += LENGTH_BYTES + size
        self._tail = data[at:]
        self._skip_bytes = max(0, at - len(data))

    def _record_fetched(self, head: RequestContext, size: int, now_ms: int) -> None:
        client, amount = head.client, size - head.api.response_header_version
        head.count(0, 0, size, amount)
        group = client.fetch(now_ms)
        if group is not None:
            self._recorded(head, group, amount, group.record(amount, now_ms), now_ms, client.fetch_throttled)
