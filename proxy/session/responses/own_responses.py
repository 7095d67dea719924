"""Responses of Sluice's own: their place in the FIFO, and the throttle of a refusal."""

from __future__ import annotations

from protocol.errors import ProtocolError
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.in_flight import InFlight, OwnReplies
from proxy.session.mutations.pending import Refusal
from proxy.session.responses.held_responses import HeldResponses
from proxy.session.responses.request_time_verdicts import RequestTimeVerdicts
from proxy.session.throttle.throttle_state import ThrottleState


class OwnResponses:
    """Those of one connection. A refusal by a mutation quota is held, or announces its throttle time, as a broker's response is."""

    __slots__ = ("_held", "_in_flight", "_replies", "_request_time", "_throttle")

    def __init__(
        self, in_flight: InFlight, replies: OwnReplies, throttle: ThrottleState, request_time: RequestTimeVerdicts, held: HeldResponses
    ) -> None:
        self._in_flight = in_flight
        self._replies = replies
        self._throttle = throttle
        self._request_time = request_time
        self._held = held

    def take_due(self, now_ms: int) -> bytes | None:
        """Return those that are due, or keep them behind a held response."""
        in_flight, held = self._in_flight, self._held
        leaving: list[bytes | memoryview] = []
        while in_flight and in_flight[0][0] is None:
            received_ms, reply = in_flight[0][3], self._replies.pop()
            frame = self._judge_refusal(reply, received_ms, now_ms) if isinstance(reply, Refusal) else reply
            (leaving if held.pieces is None else held.pieces).append(frame)
        return b"".join(leaving) if leaving else None

    def take_before(self, correlation_id: int) -> bytes:
        """Return the one that is due before the broker's response `correlation_id`.

        Raises:
            ProtocolError: there is none, so the broker's response belongs to no request.
        """
        if not self._in_flight:
            raise ProtocolError(f"response {correlation_id} although no request is in flight", reason="response_unsolicited")
        expected = self._in_flight[0][0]
        if expected is not None:
            raise ProtocolError(f"response {correlation_id} instead of {expected}", reason="response_mismatch")
        reply = self._replies.pop()
        return reply.answer(0)[0] if isinstance(reply, Refusal) else reply

    def judge_questions(self, client: ClientQuota, now_ms: int) -> None:
        """Hold the response to a request that Sluice answered, as a broker's would be, for the handler time that it cost."""
        self._request_time.judge_questions(client, now_ms)
        self._hold(now_ms)

    def _hold(self, now_ms: int) -> None:
        """Begin to hold, if the last verdict asks for it."""
        hold_until_ms = self._throttle.hold_until_ms
        if self._held.pieces is None and hold_until_ms > now_ms:
            self._held.begin(hold_until_ms)

    def _judge_refusal(self, refusal: Refusal, received_ms: int, now_ms: int) -> bytes:
        """Handle a refusal like a broker's response."""
        throttle_ms = refusal.left_ms(now_ms)
        self._request_time.forget_questions()  # the mutation quota throttles its client
        if throttle_ms > 0:
            refusal.client.mutation_throttled(refusal.group, throttle_ms, now_ms)
        in_flight = len(self._in_flight)
        announce_ms = self._throttle.judge(refusal.client, throttle_ms, refusal.group, now_ms, received_ms, in_flight, outlives=False)
        reply, stamp_at = refusal.answer(announce_ms)
        self._hold(now_ms)
        if self._held.pieces is not None:
            self._held.note_stamp(stamp_at, announce_ms, self._held.size_bytes)
        return reply
