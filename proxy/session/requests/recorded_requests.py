"""Produce requests that are recorded before they are forwarded, and not when they are answered."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.session.in_flight import InFlight
from proxy.session.mutations.filter import plain_head
from proxy.session.request_context import RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.throttle.throttle_state import ThrottleState


class RecordedRequests:
    """Those requests of one connection."""

    __slots__ = ("_classifier", "_in_flight", "_throttle")

    def __init__(self, in_flight: InFlight, throttle: ThrottleState, classifier: RequestClassifier) -> None:
        self._in_flight = in_flight
        self._throttle = throttle
        self._classifier = classifier

    def record_unanswered(self, context: RequestContext, size: int, now_ms: int) -> bool:
        """Record a Produce with acks=0, which has no response; return whether reading stops here."""
        client = context.client
        client.usage.requests[context.key] += 1
        context.count(1, size, 0, size)
        if context.work is not None:
            client.exempt(int(self._classifier.broker_times.estimate(context.work, size)), now_ms)
        group = client.produce(now_ms)
        if group is None:
            return False
        throttle_ms = self._record(context, group, size, now_ms)
        if throttle_ms > 0 or self._throttle.is_throttled:
            self._throttle.judge_unanswered(client, throttle_ms, group, now_ms, len(self._in_flight))
        return now_ms < self._throttle.read_off_until_ms

    def record_departed(self, context: RequestContext, size: int, now_ms: int) -> RequestContext:
        """Record a Produce of a client that has closed its side, so that the next one of the group waits for the verdict at once.

        Returns:
            The context for its response, which records nothing more.
        """
        client = context.client
        if context.cell is None:
            client.usage.own_produce_bytes += size
        group = client.produce(now_ms)
        if group is not None:
            self._throttle.judge_gone(client, self._record(context, group, size, now_ms), group, now_ms)
        return plain_head(context)

    def _record(self, context: RequestContext, group: EnforcedGroup, size: int, now_ms: int) -> int:
        """Record a Produce before it is forwarded, and count its verdict; return the throttle time in ms."""
        client, classifier, cell = context.client, self._classifier, context.cell
        throttle_ms = group.record(size, now_ms)
        if classifier.meter is not None:
            waits_ms = max(0, throttle_ms)
            only_observes = client.enforcement.only_observes
            applied_ms = 0 if only_observes else waits_ms
            classifier.meter.record(group, size, waits_ms, applied_ms, now_ms, classifier.number, context.index)
            if waits_ms and cell is not None:
                cell.throttled(waits_ms, waits=not only_observes)
        if throttle_ms > 0:
            client.produce_throttled(group, throttle_ms, now_ms)
        return throttle_ms
