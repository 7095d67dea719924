"""Requests that a schedule admits: Produce, with and without a response, and Fetch."""

from __future__ import annotations

from typing import Final

from proxy.enforcement.mode import INT32_MAX, Mode
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.member import Member
from proxy.session.in_flight import InFlight
from proxy.session.request_context import (
    FETCH,
    NO_ACK,
    PACED_ANSWER,
    PACED_FETCH,
    PACED_NO_ACK,
    PACED_PASS,
    PACED_PRODUCE,
    PASS,
    PRODUCE,
    RequestContext,
)
from proxy.session.requests.admitted_requests import AdmittedRequests
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.fetch_requests import lowered
from proxy.session.requests.pending_requests import INT32, PendingRequests, Stop
from proxy.session.requests.timed_requests import TimedRequests
from proxy.session.throttle.fetch_admission import Reservation
from proxy.session.throttle.paced_admission import PacedAdmission, limited_group
from proxy.session.throttle.throttle_state import ThrottleState
from quota.paced_schedule import MS_NS

_CORRELATION_ID_AT: Final = 8
_OBSERVE: Final = Mode.OBSERVE  # an Enum member is looked up by a call
_NEVER_MS: Final = 1 << 62
_OF_WINDOW: Final = {PACED_PASS: PASS, PACED_PRODUCE: PRODUCE, PACED_FETCH: FETCH, PACED_NO_ACK: NO_ACK}


class Usual:
    """What is known of requests like the last one that passed at once, for as long as no group is looked up again.

    Attributes:
        reservation: how a fetch of their member passes: on time, and without a wait.
        answered: the context of their responses.
        manager, generation: the manager of their group, and its generation.
        times, time_generation: the same for request time, by which no schedule admits them.
    """

    __slots__ = ("answered", "context", "generation", "group", "manager", "member", "reservation", "time_generation", "times")

    def __init__(self, context: RequestContext, group: PacedGroup, member: Member, answered: int) -> None:
        scope = context.client.scope
        self.context = context
        self.group = group
        self.member = member
        self.reservation = Reservation(member, True, 0)
        self.answered = context.of_kind(answered)
        self.manager = scope.fetch if context.kind == PACED_FETCH else scope.produce
        self.generation = self.manager.generation
        self.times = scope.request
        self.time_generation = self.times.generation


class PacedRequests(AdmittedRequests[PacedAdmission]):
    """Those requests of one connection.

    Attributes:
        timed: admits them by a schedule of handler time as well; None: there is none.
    """

    __slots__ = ("_fetches", "_produces", "timed")

    timed: TimedRequests | None

    def __init__(
        self,
        in_flight: InFlight,
        throttle: ThrottleState,
        admission: PacedAdmission,
        pending: PendingRequests,
        classifier: RequestClassifier,
    ) -> None:
        super().__init__(in_flight, throttle, admission, pending, classifier)
        self._produces: Usual | None = None
        self._fetches: Usual | None = None

    def resolve(self, context: RequestContext, now_ms: int) -> RequestContext:
        """Return the context by which requests are handled: another one where their group has a window, or no quota applies."""
        client = context.client
        if context.kind == PACED_PASS:
            return context.of_kind(PASS)
        group = (client.fetch if context.kind == PACED_FETCH else client.produce)(now_ms)
        if isinstance(group, PacedGroup):
            return context
        self._admission.leave_line()
        return context.of_kind(_OF_WINDOW[context.kind])

    def passes(self, context: RequestContext, size: int, now_ms: int) -> RequestContext | None:
        """Charge a Produce, or reserve for a Fetch, that certainly passes now; return the context of its response. None: nothing was done.

        That is the usual case: one process, and a group without a parent in which nothing waits. After a Produce, the schedule is at most
        the burst ahead of the clock, so its response announces nothing.
        """
        usual, throttle = self._fetches if context.kind == PACED_FETCH else self._produces, self._throttle
        if throttle.logging_in or throttle.session_ends_ms:
            return None
        if (
            usual is None
            or usual.context is not context
            or usual.generation != usual.manager.generation
            or usual.time_generation != usual.times.generation
        ):
            usual = self._look_up(context, now_ms)
            if usual is None:
                return None
        if context.kind == PACED_FETCH:
            return self._reserves(usual, now_ms)
        group = usual.group
        if not group.passes_at_once(usual.member, size, now_ms):
            self._produces = None  # its member may be another one by now
            return None
        if self._classifier.meter is not None:
            self._admission.is_on_time, self._admission.waited_ms = True, 0
            self._note(context, group, size, now_ms)
        if context.cell is None:
            context.client.usage.own_produce_bytes += size
        return usual.answered

    def _reserves(self, usual: Usual, now_ms: int) -> RequestContext | None:
        """Reserve for a Fetch that certainly passes now."""
        admission, most = self._admission, usual.context.max_bytes
        if most is None:
            return None
        reserved = most if most > admission.over_bytes else admission.over_bytes
        if not usual.group.reserves_at_once(usual.member, most, reserved, now_ms):
            self._fetches = None
            return None
        admission.fetches.enter(usual.group, reserved, most, usual.reservation)
        return usual.answered

    def _look_up(self, context: RequestContext, now_ms: int) -> Usual | None:
        """Find and keep the group and the member of a request; None: its group is none of the usual kind."""
        client, is_fetch = context.client, context.kind == PACED_FETCH
        if not is_fetch and context.kind != PACED_PRODUCE:
            return None
        timed_by = client.request(now_ms)
        group = client.fetch(now_ms) if is_fetch else client.produce(now_ms)
        if type(group) is not PacedGroup or group.parent is not None or (timed_by is not None and timed_by.is_paced):
            return None
        if client.enforcement.mode is _OBSERVE or client.has_custom_callback:
            return None
        member = group.line.member(group.path_of(client.declared, self._classifier.member), now_ms * MS_NS)
        if member.above is not group.line.root:
            return None
        if is_fetch:
            usual = self._fetches = Usual(context, group, member, FETCH)
        else:
            usual = self._produces = Usual(context, group, member, PASS)
        return usual

    def take(
        self, context: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, now_ns: int, read_ms: int, *, ungated: bool
    ) -> bytes | bytearray | None:
        """Forward the request at `at`, or keep it until the schedule admits it.

        Args:
            context: its context, of a kind from `PACED` on.
            data: bytes of the client.
            size: its size.
            now_ms, now_ns: the time, in monotonic milliseconds and nanoseconds.
            read_ms: when it was read.
            ungated: Sluice drains: a Produce waits no longer.

        Returns:
            The bytes to forward, with the request; None: it waits, and is kept.
        """
        client = context.client
        if context.kind == PACED_FETCH:
            return self._take_fetch(context, data, at, size, now_ms, now_ns, read_ms)
        group = limited_group(client.produce(now_ms))
        if group is not None:
            if not self._admits(context, group, size, data, at, size, now_ms, read_ms, ungated=ungated):
                return None
        else:
            self._admission.leave_line()
        if self.timed is not None and not self.timed.admits(context, data, at, size, now_ms, read_ms, opens=False, ungated=ungated):
            return None
        if group is not None:
            self._admission.produced(group, size, now_ms)
            self._note(context, group, size, now_ms)
        if context.kind == PACED_NO_ACK:
            context.count(1, size, 0, size)
            if context.work is not None:
                client.exempt(int(self._classifier.broker_times.estimate(context.work, size)), now_ms)
            return data
        if context.cell is None:
            client.usage.own_produce_bytes += size
        announces = group is not None and client.is_enforced and group.wait_ms(now_ms) > client.enforcement.delay_max_ms
        self._enter(context.of_kind(PACED_ANSWER if announces else PASS), data, at, size, now_ns, read_ms)
        return data

    def _take_fetch(
        self, context: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, now_ns: int, read_ms: int
    ) -> bytes | bytearray | None:
        admission = self._admission
        group = limited_group(context.client.fetch(now_ms))
        requested = INT32_MAX if context.max_bytes is None else context.max_bytes
        most = reserved = 0
        if group is not None:
            most, reserved = admission.fetch_bytes(group, requested, now_ms)
            if not self._admits(context, group, reserved, data, at, size, now_ms, read_ms, ungated=False):
                return None
        if self.timed is not None and not self.timed.admits(context, data, at, size, now_ms, read_ms, opens=False, ungated=False):
            return None
        if group is None:
            admission.fetched(None, 0, 0, now_ms)
        else:
            admission.fetched(group, reserved, most, now_ms)
            self._count_wait(context, group, now_ms)
            if most < requested and context.max_bytes is not None and context.client.is_enforced:
                data = lowered(context, data, at, most)
        self._enter(context.of_kind(FETCH), data, at, size, now_ns, read_ms)
        return data

    def _admits(
        self,
        context: RequestContext,
        group: PacedGroup,
        amount: int,
        data: bytes | bytearray,
        at: int,
        size: int,
        now_ms: int,
        read_ms: int,
        *,
        ungated: bool,
    ) -> bool:
        """Whether a request of `amount` bytes passes now; if not, it is kept."""
        admission, throttle, is_fetch = self._admission, self._throttle, context.kind == PACED_FETCH
        path, observes = group.path_of(context.client.declared, self._classifier.member), context.client.enforcement.only_observes
        client_id = context.client.client_id
        if ungated or observes or throttle.logging_in:
            admission.passes_anyway(group, path, client_id, amount, now_ms, is_fetch=is_fetch, observes=observes)
            return True
        wait_max_ms = throttle.wait_max_ms(read_ms) if throttle.session_ends_ms else _NEVER_MS
        if throttle.may_pass_expiring and (now_ms >= wait_max_ms or throttle.session_expiring(now_ms)):
            throttle.passes_while_expiring(amount)
            admission.passes_anyway(group, path, client_id, amount, now_ms, is_fetch=is_fetch, observes=False)
            return True
        if admission.admits_paced(group, path, client_id, amount, now_ms, read_ms, is_fetch=is_fetch):
            return True
        if self.timed is not None:
            self.timed.leave()
        self._pending.keep(data, at, read_ms, Stop.THROTTLE)
        self._pending.resume_at_ms = max(now_ms + 1, min(admission.wait_until_ms, wait_max_ms))
        self._pending.waits_behind_fetch = is_fetch and len(data) > at + size + INT32.size
        return False

    def _note(self, context: RequestContext, group: PacedGroup, size: int, now_ms: int) -> None:
        """Meter a Produce that passes: checked by the schedule, or unchecked before its time."""
        classifier, admission = self._classifier, self._admission
        if classifier.meter is not None:
            if admission.is_on_time:
                classifier.meter.admitted(group, size, admission.waited_ms, now_ms, classifier.number, context.index)
            else:
                classifier.meter.record_unchecked(group, size, now_ms, classifier.number, context.index)
            if not context.client.enforcement.only_observes:
                client_ref = None if context.cell is None else context.cell.client_ref
                classifier.meter.shares.passed(group, classifier.member, client_ref, size, admission.waited_ms, now_ms)
        self._count_wait(context, group, now_ms)

    def _count_wait(self, context: RequestContext, group: PacedGroup, now_ms: int) -> None:
        waited_ms, client = self._admission.waited_ms, context.client
        if waited_ms > 0:
            group.note_wait(waited_ms)
            (client.fetch_throttled if context.kind == PACED_FETCH else client.produce_throttled)(group, waited_ms, now_ms)
            if context.cell is not None:
                context.cell.throttled(waited_ms, waits=not client.enforcement.only_observes)

    def _enter(self, answered: RequestContext, data: bytes | bytearray, at: int, size: int, now_ns: int, read_ms: int) -> None:
        (correlation_id,) = INT32.unpack_from(data, at + _CORRELATION_ID_AT)
        self._in_flight.append((correlation_id, answered, size, read_ms, now_ns))
