"""Requests of paced groups in the usual case: they equal the last one but for their size, and certainly pass now."""

from __future__ import annotations

from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.member import Member
from proxy.session.in_flight import InFlight
from proxy.session.request_context import FETCH, PACED_FETCH, PACED_PRODUCE, PASS, RequestContext
from proxy.session.requests.admitted_requests import AdmittedRequests
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.pending_requests import PendingRequests
from proxy.session.throttle.paced_admission import PacedAdmission, limited_group
from proxy.session.throttle.reservations import Reservation, UsualReservation
from proxy.session.throttle.throttle_state import ThrottleState
from quota.paced_schedule import MS_NS

_OBSERVE = Mode.OBSERVE  # an Enum member is looked up by a call


class Usual:
    """What is known of requests like the last one that passed at once, for as long as no group is looked up again.

    Attributes:
        answered: the context of their responses.
        member: what they are charged to.
        manager, generation: the manager of their group, and its generation.
        times, time_generation: the same for request time, by which no schedule admits them.
        usage: where their bytes are counted without metering.
        size, amount, cost_ns: bytes of the last request, or those that each fetch requests; also as a double; and what they cost.
        under_way: a fetch of them in flight, as in `FetchAdmission`, that has reserved what it requests.
    """

    __slots__ = (
        "amount",
        "answered",
        "context",
        "cost_ns",
        "generation",
        "group",
        "manager",
        "member",
        "size",
        "time_generation",
        "times",
        "under_way",
        "usage",
    )

    def __init__(self, context: RequestContext, group: PacedGroup, member: Member, size: int) -> None:
        scope, is_fetch = context.client.scope, context.kind == PACED_FETCH
        self.context = context
        self.group = group
        self.member = member
        self.answered = context.of_kind(FETCH if is_fetch else PASS)
        self.manager = scope.fetch if is_fetch else scope.produce
        self.generation = self.manager.generation
        self.times = scope.request
        self.time_generation = self.times.generation
        self.usage = context.client.usage
        self.under_way = (group, size, size, UsualReservation(group, member, size, self.manager))
        self.learn(size)

    def learn(self, size: int) -> None:
        """Compute the cost of the requests that follow, of `size` bytes."""
        self.size, self.amount, self.cost_ns = size, float(size), self.group.cost_ns(size)


class UsualRequests(AdmittedRequests[PacedAdmission]):
    """Those requests of one connection.

    In a millisecond in which a request of the member has passed by a method of the group, and nothing but amounts has changed since
    (`PacedGroup.usual_ms`), the code here does what is left to do: two calls more for each request would cost as much as that.
    """

    __slots__ = ("_fetches", "_in_flight_fetches", "_meter", "_produces")

    def __init__(
        self,
        in_flight: InFlight,
        throttle: ThrottleState,
        admission: PacedAdmission,
        pending: PendingRequests,
        classifier: RequestClassifier,
    ) -> None:
        super().__init__(in_flight, throttle, admission, pending, classifier)
        self._meter = classifier.meter
        self._in_flight_fetches = admission.fetches
        self._produces: Usual | None = None
        self._fetches: Usual | None = None

    def passes(self, context: RequestContext, size: int, now_ms: int) -> RequestContext | None:
        """Charge a Produce that certainly passes now; return the context of its response. None: nothing was done.

        That is the usual case: one process, and a group without a parent in which nothing waits. After it, the schedule is at most the
        burst ahead of the clock, so the response announces nothing.
        """
        usual, throttle = self._produces, self._throttle
        if (
            usual is None
            or usual.context is not context
            or usual.generation != usual.manager.generation
            or usual.time_generation != usual.times.generation
        ):
            usual = self._look_up(context, now_ms)
        if usual is None or (throttle.session_ends_ms and throttle.session_expiring(now_ms)):
            return None
        member, group = usual.member, usual.group
        if member.usual_ms == now_ms == group.usual_ms:
            if size != usual.size:
                usual.learn(size)
            schedule, own_ns, cost_ns = group.schedule, member.virtual_ns, usual.cost_ns
            virtual_ns = schedule.virtual_ns
            after_ns = virtual_ns + cost_ns
            if after_ns > group.usual_end_ns:
                return None
            if own_ns is virtual_ns and group.usual_total <= 1.0:
                member.virtual_ns = after_ns
            elif own_ns <= group.usual_end_ns:
                member.virtual_ns = own_ns + (cost_ns if group.usual_total <= 1.0 else int(cost_ns * group.usual_total))
            else:
                return None
            schedule.virtual_ns = after_ns
            group._value += usual.amount  # its sample has begun, or was continued, in this millisecond
        elif not group.passes_at_once(member, size, now_ms):
            self._produces = None  # its member may be another one by now
            return None
        if self._meter is not None:
            self._note_usual(usual, size, now_ms)
        if context.cell is None:
            usual.usage.own_produce_bytes += size
        return usual.answered

    def reserves(self, context: RequestContext, now_ms: int) -> RequestContext | None:
        """Reserve for a Fetch that certainly passes now, as `passes`."""
        usual, throttle, fetches = self._fetches, self._throttle, self._in_flight_fetches
        if (
            usual is None
            or usual.context is not context
            or usual.generation != usual.manager.generation
            or usual.time_generation != usual.times.generation
        ):
            usual = self._look_up(context, now_ms)
        if usual is None or (throttle.session_ends_ms and throttle.session_expiring(now_ms)):
            return None
        member, group = usual.member, usual.group
        if member.usual_ms == now_ms == group.usual_ms and not fetches.over_bytes:
            left, own_ns = group.usual_left - usual.amount, member.virtual_ns
            if (
                left >= 0.0
                and group.open_fetches <= group.usual_fetches
                and usual.size <= group.usual_most
                and own_ns <= group.usual_end_ns
            ):
                group.usual_left = left
                group._pending += usual.amount
                group.open_fetches += 1
                if own_ns < group.usual_ns:
                    own_ns = group.usual_ns
                member.virtual_ns = own_ns + (usual.cost_ns if group.usual_total <= 1.0 else int(usual.cost_ns * group.usual_total))
                fetches.under_way.append(usual.under_way)
                return usual.answered
        most, over_bytes = usual.size, fetches.over_bytes
        reserved = most if most > over_bytes else over_bytes
        if not group.reserves_at_once(member, most, reserved, now_ms):
            self._fetches = None
            return None
        fetches.under_way.append(usual.under_way if reserved == most else (group, reserved, most, Reservation(member, True, 0)))
        return usual.answered

    def _look_up(self, context: RequestContext, now_ms: int) -> Usual | None:
        """Find and keep the group and the member of a request; None: its group is none of the usual kind."""
        client, is_fetch = context.client, context.kind == PACED_FETCH
        if context.max_bytes is None if is_fetch else context.kind != PACED_PRODUCE:
            return None
        timed_by = client.request(now_ms)
        group = limited_group(client.fetch(now_ms) if is_fetch else client.produce(now_ms))
        if type(group) is not PacedGroup or group.parent is not None or (timed_by is not None and timed_by.is_paced):
            return None
        if client.enforcement.mode is _OBSERVE or client.has_custom_callback:
            return None
        member = group.line.member(group.path_of(client.declared, self._classifier.member), now_ms * MS_NS)
        if member.above is not group.line.root:
            return None
        usual = Usual(context, group, member, context.max_bytes or 0)
        if is_fetch:
            self._fetches = usual
        else:
            self._produces = usual
        return usual

    def _note_usual(self, usual: Usual, size: int, now_ms: int) -> None:
        """Meter a Produce that passes without a wait, nearly always by one word."""
        meter, context = self._meter, usual.context
        assert meter is not None
        if not meter.passes(usual.group, size, now_ms):
            meter.passed(usual.group, size, now_ms, self._classifier.number, context.index)
        if usual.group.line.root.total > 1.0:
            client_ref = None if context.cell is None else context.cell.client_ref
            meter.shares.passed(usual.group, self._classifier.member, client_ref, size, 0, now_ms)
