"""Requests of clients whose group of request time has a schedule: each is admitted before it goes, whatever its API is."""

from __future__ import annotations

from math import ceil
from typing import Final

from protocol.api_keys import ApiKey
from proxy.enforcement.paced.time_group import PacedTimeGroup, limited_time_group
from proxy.session.in_flight import InFlight
from proxy.session.request_context import LOGIN, NO_ACK, PACED_FETCH, PACED_NO_ACK, PACED_PRODUCE, RequestContext
from proxy.session.requests.admitted_requests import AdmittedRequests
from proxy.session.requests.classifier import COORDINATOR_KEYS, RequestClassifier
from proxy.session.requests.pending_requests import PendingRequests, Stop
from proxy.session.throttle.throttle_state import ThrottleState
from proxy.session.throttle.time_admission import TimeAdmission, TimeReservation

RESERVED_OF_ESTIMATE: Final = 1.25
"""What a request reserves, over its estimated handler time: the estimate changes while the request is in flight."""
_NEVER_MS: Final = 1 << 62
_EXEMPT: Final = frozenset({NO_ACK, PACED_NO_ACK})
_COUNTED_BY_BYTES: Final = frozenset({PACED_PRODUCE, PACED_FETCH})


class TimedContext(RequestContext):
    """The context of one request in flight that has reserved handler time. What it reserved is free when its time is counted.

    Attributes:
        reservation: what it has reserved.
        charged: the handler time that the last request of each kind of work was charged, in nanoseconds.
    """

    __slots__ = ("charged", "reservation")

    charged: dict[int, int]
    reservation: TimeReservation

    @classmethod
    def of(cls, context: RequestContext, reservation: TimeReservation, charged: dict[int, int]) -> TimedContext:
        """Return a copy of the context of a request that has reserved handler time."""
        copy = cls.__new__(cls)
        for name in RequestContext.__slots__:
            setattr(copy, name, getattr(context, name))
        copy.reservation, copy.charged = reservation, charged
        return copy

    def count_time(self, handler_ns: int) -> None:
        """Add handler time of the request to the usage of its client."""
        super().count_time(handler_ns)
        if self.work is not None and self.reservation.settle(handler_ns):
            self.charged[self.work.key] = handler_ns


class TimedRequests(AdmittedRequests[TimeAdmission]):
    """Those requests of one connection. `admits` is called for each request; then `passed` if it passes, or `leave` if it waits."""

    __slots__ = ("_admitted", "_charged", "_reserved_ns")

    def __init__(
        self,
        in_flight: InFlight,
        throttle: ThrottleState,
        admission: TimeAdmission,
        pending: PendingRequests,
        classifier: RequestClassifier,
    ) -> None:
        super().__init__(in_flight, throttle, admission, pending, classifier)
        self._admitted: PacedTimeGroup | None = None  # the group of the request that passes now ...
        self._reserved_ns = 0  # ... and what it reserves
        self._charged: dict[int, int] = {}

    @property
    def has_admitted(self) -> bool:
        """Whether a schedule of handler time has admitted the request that passes now."""
        return self._admitted is not None

    def admits(
        self, context: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, read_ms: int, *, opens: bool, ungated: bool
    ) -> bool:
        """Whether handler time lets the request at `at` pass now; if not, it is kept.

        Args:
            context: its context.
            data: bytes of the client.
            size: its size.
            now_ms, read_ms: the time now, and of its read, in monotonic milliseconds.
            opens: whether it is one of the first requests of its connection.
            ungated: Sluice drains: nothing waits any longer.
        """
        client, work = context.client, context.work
        group = None
        if work is not None and context.kind not in _EXEMPT and not (opens and work.of_login and self._may_log_in(context)):
            group = limited_time_group(client.request(now_ms))
        self._admitted = group
        if group is None or work is None:
            self._admission.leave_line()
            return True
        estimated_ns = self._classifier.broker_times.estimate(work, size)
        if not work.by_request:
            estimated_ns = max(estimated_ns, self._charged.get(work.key, 0))
        self._reserved_ns = max(1, ceil(estimated_ns * RESERVED_OF_ESTIMATE))
        admission, throttle = self._admission, self._throttle
        path, observes = group.path_of(client.declared, self._classifier.member), client.enforcement.only_observes
        if ungated or observes or throttle.logging_in:
            admission.passes_anyway(group, path, client.client_id, self._reserved_ns, now_ms, observes=observes)
            return True
        wait_max_ms = throttle.wait_max_ms(read_ms) if throttle.session_ends_ms else _NEVER_MS
        if throttle.may_pass_expiring and (now_ms >= wait_max_ms or throttle.session_expiring(now_ms)):
            if context.kind not in _COUNTED_BY_BYTES:
                throttle.passes_while_expiring(size)
            admission.passes_anyway(group, path, client.client_id, self._reserved_ns, now_ms, observes=False)
            return True
        keeps_membership = context.key in COORDINATOR_KEYS or context.kind == LOGIN or (opens and context.key == ApiKey.API_VERSIONS)
        if admission.admits(group, path, client.client_id, self._reserved_ns, now_ms, read_ms, keeps_membership=keeps_membership):
            return True
        self._admitted = None
        self._pending.keep(data, at, read_ms, Stop.THROTTLE)
        self._pending.resume_at_ms = max(now_ms + 1, min(admission.wait_until_ms, wait_max_ms))
        return False

    def _may_log_in(self, context: RequestContext) -> bool:
        """Whether the broker is known to accept logins, so that a request of a login is served by no request handler."""
        return context.kind != LOGIN or self._classifier.broker_times.logs_in

    def leave(self) -> None:
        """The request waits for something else: leave the line of handler time."""
        self._admitted = None
        self._admission.leave_line()

    def passed(self, now_ms: int) -> None:
        """Reserve the handler time of the admitted request, which is the last one in the FIFO now."""
        group, self._admitted = self._admitted, None
        if group is None:
            return
        correlation_id, context, size, read_ms, forwarded_ns = self._in_flight[-1]
        if correlation_id is None or context.is_question or context.work is None:  # Sluice answers it, or asks something first
            self._admission.leave_line()
            return
        reservation = self._admission.passed(group, self._reserved_ns, now_ms)
        timed = TimedContext.of(context, reservation, self._charged)
        self._in_flight[-1] = correlation_id, timed, size, read_ms, forwarded_ns
        waited_ms, client = reservation.waited_ms, context.client
        if waited_ms > 0:
            group.note_wait(waited_ms)
            client.request_throttled(group, waited_ms, now_ms)
            if context.cell is not None:
                context.cell.throttled(waited_ms, waits=not client.enforcement.only_observes)
