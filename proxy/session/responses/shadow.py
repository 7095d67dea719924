"""Compares the broker's throttle times with Sluice's, where the brokers enforce the quotas too. Ordinary sessions do not use this."""

from __future__ import annotations

from protocol.messages.throttle_time import throttle_at
from protocol.primitives import INT32
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import INT32_MAX
from proxy.session.request_context import FETCH, PRODUCE, RequestContext
from proxy.session.responses.answer_verdicts import AnswerVerdicts
from proxy.session.responses.response_side import ResponseSide
from proxy.telemetry.counters import ShadowCounts

_TYPES = {PRODUCE: "Produce", FETCH: "Fetch"}


class ShadowResponseSide(ResponseSide):
    """Handles each response on the general path, where `ShadowVerdicts` compares it."""

    __slots__ = ()

    def scan(self, data: bytes, now_ms: int, now_ns: int) -> bytes | memoryview | None:
        """Do what `ResponseSide.scan` does, for each response by itself."""
        return self._follow(data, now_ms, now_ns)

    def _pass_runs(self, data: bytes | memoryview, at: int, now_ms: int, now_ns: int) -> int:
        return at


class ShadowVerdicts(AnswerVerdicts):
    """Records each response, and compares.

    Attributes:
        counts: the responses of which either throttles the client.
    """

    __slots__ = ("counts",)

    compares = True
    counts: ShadowCounts

    def _judge_and_compare(
        self, head: RequestContext, frame: bytes | memoryview, amount: int, received_ms: int, time_ms: int, now_ms: int
    ) -> int:
        quota_type = _TYPES.get(head.kind)
        if quota_type is None:
            return super()._judge_and_compare(head, frame, amount, received_ms, time_ms, now_ms)
        group = head.client.produce(now_ms) if head.kind == PRODUCE else head.client.fetch(now_ms)
        before_ms = 0 if group is None else group.throttle_ms_total
        announce_ms = super()._judge_and_compare(head, frame, amount, received_ms, time_ms, now_ms)
        ours_ms = 0 if group is None else group.throttle_ms_total - before_ms
        broker_ms = _broker_ms(head, frame)
        if broker_ms <= 0 >= max(ours_ms, time_ms):
            return announce_ms
        self.counts.compared(quota_type, broker_ms, max(ours_ms, time_ms))
        if self.meter is not None:
            judging = group if ours_ms > 0 or (group is not None and time_ms <= 0) else self._timing(head, now_ms)
            client_ref = None if head.cell is None else head.cell.client_ref
            self.meter.compared(quota_type, judging, client_ref, broker_ms, min(max(ours_ms, time_ms), INT32_MAX), now_ms)
        return announce_ms

    def _timing(self, head: RequestContext, now_ms: int) -> EnforcedGroup | None:
        """Return the group whose request-time quota the client has, if a request of it was timed."""
        is_timed = head.work is not None and self.request_time.enabled_times() is not None
        return head.client.request(now_ms) if is_timed else None


def _broker_ms(head: RequestContext, frame: bytes | memoryview) -> int:
    """Return the throttle time that the broker announces in the available part of a response."""
    place = throttle_at(head.api, frame)
    if place is None or place < 0 or place + INT32.size > len(frame):
        return 0
    throttle_ms: int = INT32.unpack_from(frame, place)[0]
    return max(0, throttle_ms)
