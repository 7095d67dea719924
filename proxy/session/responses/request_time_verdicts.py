"""The effect of a response on the request-time quota of its client: the handler time of its request, charged and judged."""

from __future__ import annotations

from typing import Final

from metering_format.event_kinds import EXCUSED_MS
from protocol.api_keys import ApiKey
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import INT32_MAX
from proxy.enforcement.paced.time_group import PacedTimeGroup
from proxy.enforcement.quota_scope import ClientQuota, EnforcedRequestManager
from proxy.handler_time import ConnectionHandlerTime
from proxy.meter.meter import Meter
from proxy.session.in_flight import InFlight
from proxy.session.login.login import Login
from proxy.session.request_context import LOGIN, OPENING_REQUESTS_MAX, PASS, RequestContext
from proxy.session.requests.classifier import COORDINATOR_KEYS, RequestClassifier
from proxy.session.requests.timed_requests import TimedContext
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.throttle_state import ThrottleState
from proxy.session.throttle.time_admission import TimeReservation
from quota.request_time import PERCENT_PER_NANOSECOND

NOT_CHARGED: Final = -1
ANNOUNCES: Final = -2
"""In place of a throttle time by request time: a schedule throttles nobody, and `schedule_wait_ms` is announced in the response."""
MEMBER_SILENT_MS_MAX: Final = 1_000
"""Kafka's default window. Heartbeats are 3 s apart in most clients; if each were delayed longer than that, they and commits
would queue up until the client gives up the oldest, and with it the connection."""


class RequestTimeVerdicts:
    """Charges the handler time of the requests of one connection, and applies the verdicts.

    Attributes:
        answers: number of responses that have begun; the first ones open the connection.
        request_quota: the request-time quota of the scope; while it is not enabled, no time is measured.
        times: measures handler time, created when it is needed; None: no quota has needed it.
        paying: the request whose response has begun, and which is charged for the rest when its end arrives.
        charged_ms: the throttle time of the next response, whose time is charged already; else NOT_CHARGED.
        schedule_wait_ms: how long the schedule of handler time lets nothing pass, when that is announced.
    """

    __slots__ = (
        "_charged_ns",
        "_classifier",
        "_in_flight",
        "_login",
        "_meter",
        "_number",
        "_questions_ms",
        "_settle_flag",
        "_throttle",
        "_timed_group",
        "answers",
        "charged_ms",
        "paying",
        "request_quota",
        "schedule_wait_ms",
        "times",
    )

    def __init__(
        self, in_flight: InFlight, settle_flag: SettleFlag, throttle: ThrottleState, classifier: RequestClassifier, login: Login
    ) -> None:
        self._in_flight = in_flight
        self._settle_flag = settle_flag
        self._throttle = throttle
        self._classifier = classifier
        self._login = login
        self._meter = classifier.meter
        self._number = classifier.number
        self._timed_group: EnforcedGroup | None = None  # group whose time was charged with a verdict that is not metered yet ...
        self._charged_ns = 0  # ... and the amount
        self._questions_ms = 0  # the verdict on the time of Sluice's own requests, due with the response to the client's request
        self.answers = 0
        self.charged_ms = NOT_CHARGED
        self.paying: RequestContext | None = None
        self.schedule_wait_ms = 0
        self.request_quota: EnforcedRequestManager | None = None
        self.times: ConnectionHandlerTime | None = None

    def enabled_times(self) -> ConnectionHandlerTime | None:
        """Return the measurement of handler time, None while no quota needs it."""
        return None if self.request_quota is None or not self.request_quota.enabled else self._times()

    def _times(self) -> ConnectionHandlerTime:
        if self.times is None:
            self.times = ConnectionHandlerTime(self._classifier.broker_times)
        return self.times

    def pause(self) -> None:
        """The broker is not read from now on."""
        self._times().pause()

    def resume(self, now_ns: int) -> None:
        """The broker is read again."""
        if self.times is not None:
            self.times.resume(now_ns)

    def is_free(self, head: RequestContext, data: bytes | memoryview, at: int, frame_bytes: int) -> bool:
        """Whether the time of a login request is not charged."""
        if head.kind != LOGIN:
            return self.answers <= OPENING_REQUESTS_MAX
        return self._login.is_free(head.api, data[at : at + frame_bytes])

    def take(
        self, head: RequestContext, size: int, request_size: int, forwarded_ns: int, behind_bytes: int, now_ms: int, now_ns: int
    ) -> int:
        """Charge the time of a request whose response begins here; return the throttle time in ms, or `ANNOUNCES`.

        Args:
            behind_bytes: number of bytes read after the end of the response; below zero: the number still to arrive.
        """
        work, times, client = head.work, self.times, head.client
        assert work is not None
        if times is None:
            times = self._times()
        amount = request_size if work.by_request else size
        if behind_bytes >= 0:
            charged_ns = int(times.charge(work, amount, forwarded_ns, now_ns, behind_bytes))
        else:
            charged_ns = int(times.charge_head(work, amount, forwarded_ns, now_ns))
            self.paying = head
        if times.rtt_due <= 0:
            self._settle_flag.needs_settle = True
        head.count_time(charged_ns)
        group = client.request(now_ms)
        if group is None:
            if client.is_exempt:
                client.exempt(charged_ns, now_ms)
            return 0
        if group.is_paced:
            return self._take_paced_time(head, group, charged_ns, now_ms)
        throttle_ms = group.record(charged_ns * PERCENT_PER_NANOSECOND, now_ms)
        if self._meter is not None:
            if throttle_ms <= 0:
                self._meter.passed(group, charged_ns, now_ms, self._number, head.index)
            else:
                self._timed_group, self._charged_ns = group, charged_ns
        return throttle_ms

    def _take_paced_time(self, head: RequestContext, group: EnforcedGroup, charged_ns: int, now_ms: int) -> int:
        """Charge handler time to the schedule of its group. What the request had not reserved was not checked when it passed."""
        assert isinstance(group, PacedTimeGroup)
        if not charged_ns:
            return 0
        reservation = head.reservation if isinstance(head, TimedContext) else None
        checked_ns = 0
        if self._meter is not None:
            checked_ns = group.checked_amount(charged_ns, 0 if reservation is None else reservation.admitted_ns(group), now_ms)
        group.record(charged_ns * PERCENT_PER_NANOSECOND, now_ms)
        if self._meter is not None:
            self._meter_paced_time(self._meter, head, group, (charged_ns, checked_ns), reservation, now_ms)
        client, wait_ms = head.client, group.wait_ms(now_ms)
        if wait_ms <= client.enforcement.delay_max_ms or not client.is_enforced:
            return 0
        self.schedule_wait_ms = min(wait_ms, INT32_MAX)
        return ANNOUNCES

    def _meter_paced_time(
        self,
        meter: Meter,
        head: RequestContext,
        group: PacedTimeGroup,
        amounts: tuple[int, int],
        reservation: TimeReservation | None,
        now_ms: int,
    ) -> None:
        """Meter handler time; `amounts` are what was charged, and the part of it that the schedule had admitted, in nanoseconds."""
        charged_ns, checked_ns = amounts
        waited_ms = 0 if reservation is None else reservation.waited_ms
        if not head.client.enforcement.only_observes:
            client_ref = None if head.cell is None else head.cell.client_ref
            meter.shares.passed(group, self._classifier.member, client_ref, charged_ns, waited_ms, now_ms)
        if reservation is not None and reservation.is_excused:
            meter.excused(group, charged_ns, max(1, waited_ms), now_ms, self._number, head.index)
            return
        if checked_ns:
            meter.admitted(group, checked_ns, waited_ms, now_ms, self._number, head.index)
        if charged_ns > checked_ns:
            meter.record_unchecked(group, charged_ns - checked_ns, now_ms, self._number, head.index)

    def charge_rest(self, head: RequestContext, now_ms: int, now_ns: int) -> None:
        """Charge the rest of the time at the end of a response, without a verdict, as in Kafka."""
        self.paying = None
        if self.times is None:
            return
        rest_ns, client = int(self.times.charge_end(now_ns)), head.client
        head.count_time(rest_ns)
        group = client.request(now_ms)
        if rest_ns and group is not None:
            group.record_unchecked(rest_ns * PERCENT_PER_NANOSECOND, now_ms)
            if self._meter is not None:
                self._meter.record_unchecked(group, rest_ns, now_ms, self._number, head.index)

    def meter_verdict(self, head: RequestContext, time_ms: int, waits_ms: int, now_ms: int) -> None:
        """Meter the verdict on the time that was charged last, once. `waits_ms`: the delay of a client whose quota is enforced."""
        group, self._timed_group = self._timed_group, None
        if self._meter is not None and group is not None:
            applied = applied_ms(waits_ms, time_ms, only_observes=head.client.enforcement.only_observes)
            self._meter.record(group, self._charged_ns, time_ms, applied, now_ms, self._number, head.index)

    def judge(self, head: RequestContext, time_ms: int, received_ms: int, now_ms: int) -> int:
        """Apply the verdict on a request's time, when no other is longer; return the throttle time to announce, in ms."""
        throttle, client = self._throttle, head.client
        work = head.work
        timed_by = None if work is None or head.is_question or (work.of_login and time_ms <= 0) else client.request(now_ms)
        if time_ms > 0 and timed_by is not None:
            self._questions_ms = 0  # a group that has a verdict on everything recorded gets no second one
            client.request_throttled(timed_by, time_ms, now_ms)
            return throttle.judge(client, min(time_ms, self.wait_max_ms(head)), timed_by, now_ms, received_ms, len(self._in_flight))
        if head.kind == PASS and not throttle.is_of(timed_by):
            throttle.pass_answer()
        else:
            throttle.judge_within(now_ms)
        return 0

    def wait_max_ms(self, head: RequestContext) -> int:
        """Return how long the time of a request may delay its client: a request that keeps a membership, not until that is lost.

        This includes the requests that open a connection, since a member may reconnect. A client that sends more of them gains nothing
        over one that opens another connection.
        """
        key = head.key
        if key in COORDINATOR_KEYS or (key == ApiKey.API_VERSIONS and self.answers <= OPENING_REQUESTS_MAX):
            return MEMBER_SILENT_MS_MAX
        return INT32_MAX

    def postpone(self, time_ms: int, head: RequestContext, now_ms: int) -> None:
        """Keep the verdict on the time of Sluice's own request for the response to the client's request that caused it."""
        self._questions_ms = time_ms
        self.meter_verdict(head, time_ms, time_ms, now_ms)

    def forget_questions(self) -> None:
        """Drop the verdict on the time of Sluice's own requests, because a longer throttle covers it."""
        self._questions_ms = 0

    def judge_questions(self, client: ClientQuota, now_ms: int) -> None:
        """Apply that verdict to a request that Sluice answers."""
        time_ms, self._questions_ms = self._questions_ms, 0
        group = client.request(now_ms) if time_ms > 0 else None
        if group is not None:
            client.request_throttled(group, time_ms, now_ms)
            self._throttle.judge(client, time_ms, group, now_ms, now_ms, len(self._in_flight))


def applied_ms(waits_ms: int, throttle_ms: int, *, only_observes: bool) -> int:
    """Return how long a decision of `throttle_ms` delays its client, as metering records it; `EXCUSED_MS`: not for all of it."""
    if only_observes:
        return 0
    return waits_ms if waits_ms >= throttle_ms else EXCUSED_MS
