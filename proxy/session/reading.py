"""The next step of a connection: bytes to send, whether the client is read, when to check again."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.base.close_reason import CloseReason
from proxy.base.pause_reason import DRAIN, IN_FLIGHT, THROTTLE
from proxy.enforcement.mode import IN_FLIGHT_MAX
from proxy.session.in_flight import InFlight
from proxy.session.login.login import Login
from proxy.session.requests.pending_requests import Stop
from proxy.session.requests.request_side import RequestSide
from proxy.session.responses.response_side import ResponseSide
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.throttle_state import ThrottleState


@dataclass(slots=True)
class ReadStep:
    """What a connection does next.

    Attributes:
        to_client: bytes to send to the client now.
        to_broker: bytes to send to the broker now.
        again: call `next_step` again after this one; the attributes below are set only in the last step.
        hold_until_ms: a response is held until this time, and the broker is not read; 0: the broker is read.
        pause: why the client is not read, from `pause_reason`; 0: it is read.
        wake_at_ms: when to call `next_step` again; 0: at the next event.
        in_next_turn: call `next_step` again in the next turn of the event loop.
        is_throttled: make the client's receive buffer small, so that unread bytes stay with the client.
        is_free: restore the usual receive buffers.
        reads_in_turns: a long request is arriving, and is read in turns with those of other connections.
    """

    to_client: bytes | memoryview | None = None
    to_broker: bytes | None = None
    again: bool = False
    hold_until_ms: int = 0
    pause: int = 0
    wake_at_ms: int = 0
    in_next_turn: bool = False
    is_throttled: bool = False
    is_free: bool = False
    reads_in_turns: bool = False


class Reading:
    """Decides the next step of one connection."""

    __slots__ = ("_fetch_admission", "_in_flight", "_login", "_requests", "_responses", "_throttle")

    def __init__(
        self,
        in_flight: InFlight,
        throttle: ThrottleState,
        fetch_admission: FetchAdmission,
        login: Login,
        requests: RequestSide,
        responses: ResponseSide,
    ) -> None:
        self._in_flight = in_flight
        self._throttle = throttle
        self._fetch_admission = fetch_admission
        self._login = login
        self._requests = requests
        self._responses = responses

    def next_step(self, now_ms: int, now_ns: int, *, draining: bool) -> ReadStep:
        """Return the next step; replies and held responses that are due are sent first.

        Raises:
            ProtocolError: kept bytes of the client are invalid, or a refused request.
        """
        responses = self._responses
        own = responses.take_own_replies(now_ms) if self._in_flight else None
        if own is not None:
            return ReadStep(to_client=own, again=True)
        step = ReadStep()
        if responses.held.until_ms:
            hold_until_ms = self._throttle.held_until_ms(responses.held.until_ms)
            if draining or now_ms >= hold_until_ms:
                return ReadStep(to_client=responses.held.release(now_ms), again=True)
            step.hold_until_ms = hold_until_ms
        if draining:
            self._read_rest(step, now_ms, now_ns)
        else:
            self._read(step, now_ms, now_ns)
        step.again = step.again or responses.next_is_own_reply
        return step

    def _read(self, step: ReadStep, now_ms: int, now_ns: int) -> None:
        """Decide whether the client is read, or kept bytes are forwarded."""
        requests, pending, throttle = self._requests, self._requests.pending, self._throttle
        step.is_throttled = throttle.active or now_ms < throttle.read_off_until_ms
        if now_ms < throttle.read_off_until_ms and not requests.ungated and not throttle.logging_in:
            self._fetch_admission.stop_waiting()
            step.wake_at_ms = throttle.read_off_until_ms
            if not (throttle.unanswered and requests.in_frame):  # else no response can be held: the frame itself has to arrive whole
                step.pause = THROTTLE
            return
        stop = pending.stop
        if stop is Stop.NONE:
            step.is_free = not throttle.active
            step.reads_in_turns = pending.is_long and not throttle.departed
        elif stop is Stop.THROTTLE and now_ms < pending.resume_at_ms:
            step.pause, step.wake_at_ms = THROTTLE, pending.resume_at_ms
        elif stop is Stop.IN_FLIGHT and self._is_full(now_ms):
            step.pause, step.wake_at_ms = IN_FLIGHT, throttle.expiring_at_ms(now_ms)
        elif self._waits_for_an_answer(stop):
            step.pause = IN_FLIGHT
        elif stop is Stop.TURN:
            step.pause, step.in_next_turn = IN_FLIGHT, True
        else:
            step.to_broker = requests.resume(now_ms, now_ns)
            step.again = True

    def _is_full(self, now_ms: int) -> bool:
        """Whether the maximum number of requests is in flight."""
        throttle = self._throttle
        if not throttle.limits:  # as in a scan, which then has the usual limit, also shortly before the end of a session
            return len(self._in_flight) >= min(self._requests.pending.in_flight_stop, IN_FLIGHT_MAX)
        in_flight_max = throttle.in_flight_max(now_ms)
        if not throttle.session_expiring(now_ms):
            in_flight_max = min(self._requests.pending.in_flight_stop, in_flight_max)
        return len(self._in_flight) >= in_flight_max > 0

    def _waits_for_an_answer(self, stop: Stop) -> bool:
        """Whether kept bytes are forwarded after a response, by the broker or Sluice itself."""
        requests = self._requests
        if requests.pending.waits_for_us or (stop is Stop.LOGIN and self._login.awaits):
            return True
        return stop is Stop.NONE_IN_FLIGHT and bool(self._in_flight) and not requests.ungated

    def _read_rest(self, step: ReadStep, now_ms: int, now_ns: int) -> None:
        """Read no more than the rest of a frame; requests behind one that Sluice answers, or behind a fetch, still get their turn."""
        requests, pending = self._requests, self._requests.pending
        has_turn = pending.stops_for_us or pending.waits_behind_fetch
        if has_turn and not pending.waits_for_us and (pending.stop is not Stop.THROTTLE or now_ms >= pending.resume_at_ms):
            step.to_broker = requests.resume(now_ms, now_ns)
            has_turn = pending.stops_for_us or pending.waits_behind_fetch
        requests.draining = not has_turn
        if not (requests.draining and requests.in_frame):  # else the frame may have begun before its client was throttled
            step.pause = DRAIN
        step.wake_at_ms = pending.resume_at_ms if pending.waits_behind_fetch else 0

    @property
    def has_sent_all(self) -> bool:
        """Whether all bytes read from the client were forwarded."""
        requests = self._requests
        return not requests.pending.keeps and requests.pending.stop is not Stop.LOGIN and not requests.pending.stops_for_us

    def end_reason(self, *, client_eof: bool, draining: bool) -> CloseReason | None:
        """Why the connection ends, after the client has closed its side or Sluice drains; None: a response is still pending."""
        requests, responses = self._requests, self._responses
        pending = len(self._in_flight) - (requests.unfinished if client_eof else 0)
        if pending > 0 or responses.in_frame or responses.held.until_ms or requests.pending.administered is not None:
            return None
        if draining:
            is_done = not requests.pending.waits_behind_fetch and (client_eof or not requests.in_frame)
            return CloseReason.DRAIN if is_done else None
        return CloseReason.CLIENT_CLOSED if client_eof and not requests.pending.keeps else None
