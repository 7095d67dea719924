"""The effect of a response on its client's quotas: bytes, handler time, changed topics."""

from __future__ import annotations

from itertools import islice
from typing import Final

from metering_format.event_kinds import EXCUSED_MS
from protocol.api_keys import ApiKey
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import INT32_MAX
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.time_group import PacedTimeGroup
from proxy.enforcement.quota_scope import ClientQuota, EnforcedRequestManager
from proxy.handler_time import ConnectionHandlerTime
from proxy.meter.meter import Meter
from proxy.meter.record import RUN_VALUE_END
from proxy.session.in_flight import InFlight
from proxy.session.login.login import Login
from proxy.session.mutations.charge import is_strict
from proxy.session.mutations.pending import PendingMutation
from proxy.session.request_context import FETCH, LOGIN, PASS, PRODUCE, RequestContext
from proxy.session.requests.classifier import COORDINATOR_KEYS, RequestClassifier
from proxy.session.requests.timed_requests import TimedContext
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.paced_admission import announced_ms
from proxy.session.throttle.throttle_state import ThrottleState
from proxy.session.throttle.time_admission import TimeReservation
from quota.request_time import PERCENT_PER_NANOSECOND

ANNOUNCES: Final = -2
"""In place of a throttle time by request time: a schedule throttles nobody, and `schedule_wait_ms` is announced in the response."""
MEMBER_SILENT_MS_MAX: Final = 1_000
"""Kafka's default window. Heartbeats are 3 s apart in most clients; if each were delayed longer than that, they and commits
would queue up until the client gives up the oldest, and with it the connection."""
OPENING_ANSWERS_MAX: Final = 2
"""ApiVersions requests that open a connection: a second one if the broker does not know the version of the first (KIP-511)."""


class AnswerVerdicts:
    """Records the responses of one connection, and applies the verdicts.

    Attributes:
        answers: number of responses that have begun.
        request_quota: the request-time quota of the scope; while it is not enabled, no time is measured.
        times: measures handler time, created when it is needed.
        meter: receives decisions; None: nothing is metered.
        paying: the request whose response has begun, and which is charged for the rest when its end arrives.
        schedule_wait_ms: how long the schedule of handler time lets nothing pass, when that is announced.
    """

    __slots__ = (
        "_charged_ns",
        "_classifier",
        "_fetch_admission",
        "_in_flight",
        "_login",
        "_number",
        "_questions_ms",
        "_settle_flag",
        "_throttle",
        "_timed_group",
        "answers",
        "meter",
        "paying",
        "request_quota",
        "schedule_wait_ms",
        "times",
    )

    def __init__(
        self,
        in_flight: InFlight,
        settle_flag: SettleFlag,
        throttle: ThrottleState,
        fetch_admission: FetchAdmission,
        classifier: RequestClassifier,
        login: Login,
    ) -> None:
        self._in_flight = in_flight
        self._settle_flag = settle_flag
        self._throttle = throttle
        self._fetch_admission = fetch_admission
        self._classifier = classifier
        self._login = login
        self._number = classifier.number
        self._timed_group: EnforcedGroup | None = None  # group whose time was charged with a verdict that is not noted yet ...
        self._charged_ns = 0  # ... and the amount
        self._questions_ms = 0  # the verdict on the time of Sluice's own requests, due with the response to the client's request
        self.answers = 0
        self.meter = classifier.meter
        self.paying: RequestContext | None = None
        self.schedule_wait_ms = 0
        self.request_quota: EnforcedRequestManager | None = None
        self.times: ConnectionHandlerTime | None = None

    def record_run_within(self, head: RequestContext, count: int, size: int, amount: int, now_ms: int) -> bool:
        """Record responses to Produce requests like `head` that are certainly within the quota; False: nothing was recorded.

        Recording them together equals recording them one by one, since sums of integers below 2^53 are exact.

        Args:
            head: the context of all requests.
            count: number of requests, the first in flight; at least two.
            size: size of each request in bytes; 0: they differ.
            amount: sum of their sizes.
            now_ms: monotonic milliseconds.
        """
        group = head.client.produce(now_ms)
        if group is None:
            return True
        if not group.record_within(amount, now_ms):
            return False
        meter = self.meter
        if meter is not None and head.cell is not None:
            if 0 < size < RUN_VALUE_END:
                meter.passed_alike(group, size, count, now_ms, self._number, head.index)
            else:
                sizes = [request_size for _, _, request_size, _, _ in islice(self._in_flight, count)]
                meter.passed_run(group, sizes, now_ms, self._number, head.index)
        return True

    def record_fetches_within(self, head: RequestContext, sizes: list[int], amount: int, now_ms: int) -> bool:
        """Record responses to fetches like `head` that are certainly within the quota; False: nothing was recorded.

        Args:
            head: the context of all fetches.
            sizes: bytes that each response counts; at least two.
            amount: their sum.
            now_ms: monotonic milliseconds.
        """
        group = head.client.fetch(now_ms)
        if group is not None:
            if not group.record_within(amount, now_ms):
                return False
            if self.meter is not None and head.cell is not None:
                self.meter.passed_run(group, sizes, now_ms, self._number, head.index)
        for size in sizes:
            self._fetch_admission.answered(size)
        return True

    def judge(self, head: RequestContext, amount: int, received_ms: int, time_ms: int, now_ms: int) -> int:
        """Record the bytes of one response, whose head has arrived; return the throttle time to announce in it, in ms.

        Args:
            head: the context of its request, whose kind is at most FETCH.
            amount: the bytes that it counts.
            received_ms: when its request was read.
            time_ms: the throttle time by the request-time quota; the longer one applies, and only it is counted.
            now_ms: monotonic milliseconds.
        """
        client, kind = head.client, head.kind
        group: EnforcedGroup | None = None
        admitted = 0
        if kind == PRODUCE:
            group = client.produce(now_ms)
        elif kind == FETCH:
            group = client.fetch(now_ms)
            admitted = self._fetch_admission.answered(amount, group)
        if group is not None and group.is_paced:
            self._record_paced(head, group, amount, admitted, now_ms)
            group = None
        throttle_ms = 0 if group is None else group.record(amount, now_ms)
        throttle = self._throttle
        if self.meter is not None:
            if throttle_ms <= 0 >= time_ms:
                if group is not None:
                    self.meter.passed(group, amount, now_ms, self._number, head.index)
            else:
                self._note_verdict(head, group, amount, throttle_ms, time_ms, now_ms)
        if throttle_ms <= 0 >= time_ms and not throttle.active:
            return 0
        if throttle_ms > time_ms and group is not None:
            (client.produce_throttled if kind == PRODUCE else client.fetch_throttled)(group, throttle_ms, now_ms)
            return throttle.judge(client, throttle_ms, group, now_ms, received_ms, len(self._in_flight))
        return self._judge_time(head, time_ms, received_ms, now_ms)

    def _record_paced(self, head: RequestContext, group: EnforcedGroup, amount: int, admitted: int, now_ms: int) -> None:
        """Charge a response to the schedule of its group. What is more than the schedule had admitted was not checked when it passed."""
        assert isinstance(group, PacedGroup)
        checked = group.checked_amount(amount, admitted, now_ms)
        group.record(amount, now_ms)
        if self.meter is not None:
            waited_ms = 0 if self._fetch_admission.paced is None else self._fetch_admission.paced.answered_waited_ms
            if not head.client.enforcement.only_observes:
                client_ref = None if head.cell is None else head.cell.client_ref
                self.meter.shares.passed(group, self._classifier.member, client_ref, amount, waited_ms, now_ms)
            if checked:
                self.meter.admitted(group, checked, waited_ms, now_ms, self._number, head.index)
            if amount > checked:
                self.meter.record_unchecked(group, amount - checked, now_ms, self._number, head.index)

    def note_usual(self, head: RequestContext, group: PacedGroup, amount: int, now_ms: int) -> None:
        """Meter a response to a Fetch that was charged at once, and the share of its member."""
        assert self.meter is not None
        if not self.meter.passes(group, amount, now_ms):
            self.meter.admitted(group, amount, 0, now_ms, self._number, head.index)
        if group.line.root.total > 1.0:
            client_ref = None if head.cell is None else head.cell.client_ref
            self.meter.shares.passed(group, self._classifier.member, client_ref, amount, 0, now_ms)

    def judge_produced(self, head: RequestContext, received_ms: int, time_ms: int, now_ms: int) -> int:
        """Return the throttle time to announce in the response to a Produce that a schedule has admitted, in ms: the longer of two."""
        return max(self.judge(head, 0, received_ms, time_ms, now_ms), announced_ms(head.client, now_ms))

    def _note_verdict(
        self, head: RequestContext, group: EnforcedGroup | None, amount: int, throttle_ms: int, time_ms: int, now_ms: int
    ) -> None:
        """Meter verdicts with the delay of the client: the longer of the two, or less where the client is excused."""
        waits_ms = throttle_ms if throttle_ms > time_ms and group is not None else min(time_ms, self._wait_max_ms(head))
        only_observes = head.client.enforcement.only_observes
        if only_observes:
            waits_ms = 0
        if head.cell is not None:
            decided_ms = max(throttle_ms, time_ms)
            head.cell.throttled(decided_ms, waits=waits_ms >= decided_ms)
        meter, timed_group = self.meter, self._timed_group
        assert meter is not None
        if timed_group is not None:
            self._timed_group = None
            applied_ms = _applied_ms(waits_ms, time_ms, only_observes=only_observes)
            meter.record(timed_group, self._charged_ns, time_ms, applied_ms, now_ms, self._number, head.index)
        if group is not None:
            throttle_ms = max(throttle_ms, 0)
            applied_ms = _applied_ms(waits_ms, throttle_ms, only_observes=only_observes)
            meter.record(group, amount, throttle_ms, applied_ms, now_ms, self._number, head.index)

    def _judge_time(self, head: RequestContext, time_ms: int, received_ms: int, now_ms: int) -> int:
        """Apply the verdict on a request's time, when no other is longer."""
        throttle, client = self._throttle, head.client
        work = head.work
        timed_by = None if work is None or head.is_question or (work.of_login and time_ms <= 0) else client.request(now_ms)
        if time_ms > 0 and timed_by is not None:
            self._questions_ms = 0  # a group that has a verdict on everything recorded gets no second one
            client.request_throttled(timed_by, time_ms, now_ms)
            return throttle.judge(client, min(time_ms, self._wait_max_ms(head)), timed_by, now_ms, received_ms, len(self._in_flight))
        if head.kind == PASS and not throttle.is_of(timed_by):
            throttle.pass_answer()
        else:
            throttle.judge_within(now_ms)
        return 0

    def judge_login(self, head: RequestContext, time_ms: int, received_ms: int, now_ms: int) -> int:
        """Apply the verdict on the time of a login message that is charged like any request."""
        if self.meter is not None:
            self._note_verdict(head, None, 0, 0, time_ms, now_ms)
        return self._judge_time(head, time_ms, received_ms, now_ms)

    def _wait_max_ms(self, head: RequestContext) -> int:
        """Return how long the time of a request may delay its client: a request that keeps a membership, not until that is lost.

        This includes the requests that open a connection, since a member may reconnect. A client that sends more of them gains nothing
        over one that opens another connection.
        """
        key = head.key
        if key in COORDINATOR_KEYS or (key == ApiKey.API_VERSIONS and self.answers <= OPENING_ANSWERS_MAX):
            return MEMBER_SILENT_MS_MAX
        return INT32_MAX

    def is_free(self, head: RequestContext, data: bytes | memoryview, at: int, frame_bytes: int) -> bool:
        """Whether the time of a login request is not charged."""
        if head.kind != LOGIN:
            return self.answers <= OPENING_ANSWERS_MAX
        return self._login.is_free(head.api, data[at : at + frame_bytes])

    def take_time(
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
        if self.meter is not None:
            if throttle_ms <= 0:
                self.meter.passed(group, charged_ns, now_ms, self._number, head.index)
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
        if self.meter is not None:
            checked_ns = group.checked_amount(charged_ns, 0 if reservation is None else reservation.admitted_ns(group), now_ms)
        group.record(charged_ns * PERCENT_PER_NANOSECOND, now_ms)
        if self.meter is not None:
            self._meter_paced_time(self.meter, head, group, (charged_ns, checked_ns), reservation, now_ms)
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
            if self.meter is not None:
                self.meter.record_unchecked(group, rest_ns, now_ms, self._number, head.index)

    def postpone(self, time_ms: int, head: RequestContext, now_ms: int) -> None:
        """Keep the verdict on the time of Sluice's own request for the response to the client's request that caused it."""
        self._questions_ms = time_ms
        group, self._timed_group = self._timed_group, None
        if self.meter is not None and group is not None:
            applied_ms = 0 if head.client.enforcement.only_observes else time_ms
            self.meter.record(group, self._charged_ns, time_ms, applied_ms, now_ms, self._number, head.index)

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

    def judge_changes(self, head: RequestContext, throttle_ms: int, received_ms: int, time_ms: int, now_ms: int) -> int:
        """Apply the verdict on changed topics, which were charged; return the throttle time to announce, in ms."""
        ticket = head.ticket
        assert isinstance(ticket, PendingMutation)
        if self.meter is not None and time_ms > 0:
            self._note_verdict(head, None, 0, throttle_ms, time_ms, now_ms)
        elif throttle_ms > 0 and head.cell is not None:
            head.cell.throttled(throttle_ms, waits=not head.client.enforcement.only_observes)
        if throttle_ms <= 0 >= time_ms and not self._throttle.active:
            return 0
        if time_ms > 0 and time_ms >= throttle_ms:
            return self._judge_time(head, time_ms, received_ms, now_ms)
        if throttle_ms > 0:
            head.client.mutation_throttled(ticket.group, throttle_ms, now_ms)
        return self._throttle.judge(
            head.client, throttle_ms, ticket.group, now_ms, received_ms, len(self._in_flight), outlives=not is_strict(head.api)
        )


def _applied_ms(waits_ms: int, throttle_ms: int, *, only_observes: bool) -> int:
    return waits_ms if waits_ms >= throttle_ms or only_observes else EXCUSED_MS
