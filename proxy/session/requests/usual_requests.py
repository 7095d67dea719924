"""Requests of paced groups in the usual case: they equal the last one but for their size, and certainly pass now."""

from __future__ import annotations

from typing import Final

from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.member import Member
from proxy.meter.meter import Meter
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
_NO_PERIOD: Final = object()


class Usual:
    """What is known of requests like the last one that passed at once, for as long as no group is looked up again.

    Equal contexts have one member, so all connections of a client share it.

    Attributes:
        answered: the context of their responses.
        member: what they are charged to.
        renewals, renewed: of the quota scope of the client, and their number.
        period: the time in which they pass in the usual case, as in `PacedGroup`, since one of them has passed.
        usage: where their bytes are counted without metering.
        size, amount, cost_ns: bytes of the last request, or those that each fetch requests; also as a double; and what they cost.
        under_way: a fetch of them in flight, as in `FetchAdmission`, that has reserved what it requests.
    """

    __slots__ = ("amount", "answered", "cost_ns", "group", "member", "period", "renewals", "renewed", "size", "under_way", "usage")

    def __init__(self, context: RequestContext, group: PacedGroup, member: Member, size: int) -> None:
        self.group = group
        self.member = member
        self.answered = context.of_kind(FETCH if context.kind == PACED_FETCH else PASS)
        self.renewals = context.client.scope.renewals
        self.renewed = self.renewals.number
        self.period: object = _NO_PERIOD
        self.usage = context.client.usage
        self.under_way = (group, size, size, UsualReservation(group, member, size, self.renewals))
        self.learn(size)

    def learn(self, size: int) -> None:
        """Compute the cost of the requests that follow, of `size` bytes."""
        self.size, self.amount, self.cost_ns = size, float(size), self.group.cost_ns(size)


class UsualRequests(AdmittedRequests[PacedAdmission]):
    """Those requests of one connection.

    After a request of a client has passed by a method of the group, and while nothing but amounts has changed since
    (`PacedGroup.usual_period`), the code here does what is left to do: two calls more for each request would cost as much as that.
    """

    __slots__ = ("_in_flight_fetches", "_meter")

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

    def passes(self, context: RequestContext, size: int, now_ms: int) -> RequestContext | None:
        """Charge a Produce that certainly passes now; return the context of its response. None: nothing was done.

        That is the usual case: one process, and a group without a parent in which nothing waits. After it, the schedule is at most the
        burst ahead of the clock, so the response announces nothing.
        """
        usual: Usual | None = context.usual
        if usual is None or usual.renewed != usual.renewals.number:
            usual = self._look_up(context, now_ms)
            if usual is None:
                return None
        if self._throttle.session_ends_ms and self._throttle.session_expiring(now_ms):
            return None
        group, member = usual.group, usual.member
        if size != usual.size:
            usual.learn(size)
        if usual.period is group.usual_period and now_ms == group.usual_ms:
            schedule = group.schedule
            virtual_ns = schedule.virtual_ns
            after_ns = virtual_ns + usual.cost_ns
            if after_ns > group.usual_end_ns:
                return None
            own_ns = member.virtual_ns
            if own_ns is virtual_ns:  # it is the only member, and its request was the last one
                member.virtual_ns = after_ns
            elif own_ns <= group.usual_end_ns:
                own_cost = usual.cost_ns if group.usual_total <= 1.0 else int(usual.cost_ns * group.usual_total)
                member.virtual_ns = (own_ns if own_ns > group.usual_ns else group.usual_ns) + own_cost
                member.claims_until_ns = group.usual_claim_ns
            else:
                return None
            schedule.virtual_ns = after_ns
            group._value += usual.amount  # its sample has begun, or was continued, in this millisecond
        elif group.passes_at_once(member, size, usual.cost_ns, now_ms):
            usual.period = group.usual_period
        else:
            context.usual = None  # its member may be another one by now
            return None
        meter = self._meter
        if meter is not None:
            if not meter.passes(group, size, now_ms):
                meter.passed(group, size, now_ms, self._classifier.number, context.index)
            if group.usual_total > 1.0:
                self._note_share(meter, context, group, size, now_ms)
        if context.cell is None:
            usual.usage.own_produce_bytes += size
        return usual.answered

    def reserves(self, context: RequestContext, now_ms: int) -> RequestContext | None:
        """Reserve for a Fetch that certainly passes now, as `passes`."""
        usual: Usual | None = context.usual
        if usual is None or usual.renewed != usual.renewals.number:
            usual = self._look_up(context, now_ms)
            if usual is None:
                return None
        if self._throttle.session_ends_ms and self._throttle.session_expiring(now_ms):
            return None
        fetches, group, member = self._in_flight_fetches, usual.group, usual.member
        if usual.period is group.usual_period and not fetches.over_bytes and (now_ms == group.usual_ms or group.continues(now_ms)):
            left, own_ns = group.usual_left - usual.amount, member.virtual_ns
            if (
                left >= 0.0
                and group.open_fetches <= group.usual_fetches
                and member.open_fetches <= member.fetches_most
                and own_ns <= group.usual_end_ns
            ):
                group.usual_left = left
                group._pending += usual.amount
                group.open_fetches += 1
                member.open_fetches += 1
                if own_ns < group.usual_ns:
                    own_ns = group.usual_ns
                member.virtual_ns = own_ns + (usual.cost_ns if group.usual_total <= 1.0 else int(usual.cost_ns * group.usual_total))
                member.claims_until_ns = group.usual_claim_ns
                fetches.under_way.append(usual.under_way)
                return usual.answered
        most = usual.size
        reserved = fetches.reserved_bytes(most)
        if not group.reserves_at_once(member, most, reserved, now_ms):
            context.usual = None
            return None
        usual.period = group.usual_period
        fetches.under_way.append(usual.under_way if reserved == most else (group, reserved, most, Reservation(member, member, True, 0)))
        return usual.answered

    def _look_up(self, context: RequestContext, now_ms: int) -> Usual | None:
        """Find and keep the group and the member of a request; None: its group is none of the usual kind."""
        client, is_fetch = context.client, context.kind == PACED_FETCH
        if (context.max_bytes is None or context.waits_long) if is_fetch else context.kind != PACED_PRODUCE:
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
        context.usual = usual = Usual(context, group, member, context.max_bytes or 0)
        return usual

    def _note_share(self, meter: Meter, context: RequestContext, group: PacedGroup, size: int, now_ms: int) -> None:
        """Meter the share of the member that a Produce belongs to."""
        client_ref = None if context.cell is None else context.cell.client_ref
        meter.shares.passed(group, self._classifier.member, client_ref, size, 0, now_ms)
