"""What an answer means for the quotas of who asked: bytes, time of the broker's threads, topics that changed."""

from __future__ import annotations

from typing import Final

from protocol.api_keys import ApiKey
from protocol.headers import response_header_len
from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from proxy.enforcement.mode import INT32_MAX
from proxy.enforcement.quota_scope import ClientQuota
from proxy.handler_time import ConnectionHandlerTime
from proxy.meter.record import EXCUSED_MS
from proxy.session.attention import Attention
from proxy.session.fetch_admission import FetchAdmission
from proxy.session.in_flight import InFlight
from proxy.session.login import Login
from proxy.session.mutations.charge import is_strict
from proxy.session.mutations.pending import PendingMutation
from proxy.session.request_classifier import COORDINATOR_KEYS, RequestClassifier
from proxy.session.request_context import FETCH, LOGIN, MUTATION, PASS, PRODUCE, RequestContext
from proxy.session.throttle_state import ThrottleState
from quota.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND, ClientRequestQuotaManager

MEMBER_SILENT_MS_MAX: Final = 1_000
"""Kafka's default window. Heartbeats are 3 s apart in most clients; were they let through more slowly than they come, they and commits
would stand in line until the client gives up the oldest, and with it the connection."""
OPENING_ANSWERS_MAX: Final = 2
"""With so many ApiVersions a client opens a connection: a second one if the broker does not know the version of the first (KIP-511)."""


class AnswerVerdicts:
    """Records and judges the answers of one connection.

    Attributes:
        answers: those that have begun.
        request_quota: of the scope; while it is not enabled no time is taken.
        times: made when it is.
    """

    __slots__ = (
        "_attention",
        "_changes_ms",
        "_charged_ns",
        "_classifier",
        "_debt",
        "_fetch_admission",
        "_in_flight",
        "_login",
        "_meter",
        "_number",
        "_paying",
        "_questions_ms",
        "_timed_group",
        "answers",
        "request_quota",
        "times",
    )

    def __init__(
        self, in_flight: InFlight, attention: Attention, debt: ThrottleState, gate: FetchAdmission, heads: RequestClassifier, login: Login
    ) -> None:
        self._in_flight = in_flight
        self._attention = attention
        self._debt = debt
        self._fetch_admission = gate
        self._classifier = heads
        self._login = login
        self._meter = heads.meter
        self._number = heads.number
        self._timed_group: QuotaGroup | None = None  # whose time was charged and gave a verdict that is not noted yet ...
        self._charged_ns = 0  # ... and how much
        self._changes_ms = 0  # how long the quota of the topics in the answer that is judged wants its client to wait
        self._questions_ms = 0  # the verdict on the time of our questions, due with the answer to the request that made us ask
        self._paying: RequestContext | None = None  # who pays for the answer whose end is to come
        self.answers = 0
        self.request_quota: ClientRequestQuotaManager | None = None
        self.times: ConnectionHandlerTime | None = None

    def _settle_login(self, head: RequestContext, frame: bytes | memoryview, sent_ms: int, *, is_judged: bool) -> None:
        """Take in what the broker says of a message of its client's login; `is_judged`: its time gives a verdict too."""
        raise NotImplementedError

    def _judge(
        self,
        head: RequestContext,
        data: bytes | memoryview,
        at: int,
        size: int,
        request_size: int,
        received_ms: int,
        time_ms: int,
        now_ms: int,
    ) -> int:
        """Record what the request brought or the answer brings; return milliseconds to announce in the answer.

        `time_ms` is what the time of the request says already; the longer of the two throttles holds, and only it is in the books.
        """
        client, meter, cell = head.client, self._meter, head.cell
        if head.kind >= MUTATION:
            if head.kind == LOGIN:
                self._settle_login(head, data[at : at + size + LENGTH_BYTES], received_ms, is_judged=time_ms > 0)
                return self._judge_login(head, time_ms, received_ms, now_ms) if time_ms > 0 else 0
            return self._judge_changes(head, received_ms, time_ms, now_ms)
        group: QuotaGroup | None
        if head.kind == PRODUCE:
            amount = request_size
            if cell is None:
                client.usage.own_produce_bytes += amount
            group = client.produce(now_ms)
        elif head.kind == FETCH:
            # Kafka meters 4 + body: the frame without its length, its correlation id standing for the 4
            amount = size
            if head.api.response_header_version:
                no_tags = size > LENGTH_BYTES and data[at + RESPONSE_HEAD_BYTES] == 0
                amount -= 1 if no_tags else (response_header_len(head.api, data, at) or RESPONSE_HEAD_BYTES) - LENGTH_BYTES
            if cell is None:
                client.usage.own_fetch_bytes += amount
            else:
                cell.fetch_bytes += amount
            self._fetch_admission.answered(amount)
            group = client.fetch(now_ms)
        else:
            amount, group = 0, None
        throttle_ms = 0 if group is None else group.record(amount, now_ms)
        debt = self._debt
        if meter is not None:
            if throttle_ms <= 0 >= time_ms:
                if group is not None:
                    meter.passed(group, amount, now_ms, self._number, head.index)
            else:
                self._note_verdict(head, group, amount, throttle_ms, time_ms, now_ms)
        if throttle_ms <= 0 >= time_ms and not debt.active:
            return 0
        if throttle_ms > time_ms and group is not None:
            (client.produce_throttled if head.kind == PRODUCE else client.fetch_throttled)(group, throttle_ms, now_ms)
            return debt.judge(client, throttle_ms, group, now_ms, received_ms, len(self._in_flight))
        return self._judge_time(head, time_ms, received_ms, now_ms)

    def _note_verdict(
        self, head: RequestContext, group: QuotaGroup | None, amount: int, throttle_ms: int, time_ms: int, now_ms: int
    ) -> None:
        """Meter verdicts with what the client is made to wait for them: the longer of the two, or less where that is excused."""
        waits_ms = throttle_ms if throttle_ms > time_ms and group is not None else min(time_ms, self._wait_max_ms(head))
        only_observes = head.client.enforcement.only_observes
        if only_observes:
            waits_ms = 0
        if head.cell is not None:
            decided_ms = max(throttle_ms, time_ms)
            head.cell.throttled(decided_ms, waits=waits_ms >= decided_ms)
        meter, timed_group = self._meter, self._timed_group
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
        """Take in the verdict on a request's time, where no other is longer."""
        debt, client = self._debt, head.client
        work = head.work
        timed_by = None if work is None or head.is_question or (work.of_login and time_ms <= 0) else client.request(now_ms)
        if time_ms > 0 and timed_by is not None:
            self._questions_ms = 0  # whose verdict is on all that was recorded is no second one
            client.request_throttled(timed_by, time_ms, now_ms)
            return debt.judge(client, min(time_ms, self._wait_max_ms(head)), timed_by, now_ms, received_ms, len(self._in_flight))
        if head.kind == PASS and not debt.is_of(timed_by):
            debt.pass_answer()
        else:
            debt.judge_within(now_ms)
        return 0

    def _judge_login(self, head: RequestContext, time_ms: int, received_ms: int, now_ms: int) -> int:
        """Take in the verdict on the time of a message of a login that is charged like any request."""
        if self._meter is not None:
            self._note_verdict(head, None, 0, 0, time_ms, now_ms)
        return self._judge_time(head, time_ms, received_ms, now_ms)

    def _wait_max_ms(self, head: RequestContext) -> int:
        """How long the time of a request may make its client wait: one that keeps a membership, not until that is lost.

        Nor one with which a connection is opened, since a member may do that whose connection is gone. Who asks for more is no better
        off than who opens another connection.
        """
        key = head.key
        if key in COORDINATOR_KEYS or (key == ApiKey.API_VERSIONS and self.answers <= OPENING_ANSWERS_MAX):
            return MEMBER_SILENT_MS_MAX
        return INT32_MAX

    def _is_free(self, head: RequestContext, data: bytes | memoryview, at: int, frame_bytes: int) -> bool:
        """Whether the time of a request of a login is nobody's."""
        if head.kind != LOGIN:
            return self.answers <= OPENING_ANSWERS_MAX
        return self._login.is_free(head.api, data[at : at + frame_bytes])

    def _take_time(
        self, head: RequestContext, size: int, request_size: int, forwarded_ns: int, beyond_bytes: int, now_ms: int, now_ns: int
    ) -> int:
        """Charge the time of a request whose answer begins here; return the throttle time in ms.

        Args:
            beyond_bytes: how many bytes were read behind the end of the answer; below zero: so many are to come.
        """
        work, times, client = head.work, self.times, head.client
        assert work is not None
        assert times is not None
        amount = request_size if work.by_request else size
        if beyond_bytes >= 0:
            charged_ns = int(times.charge(work, amount, forwarded_ns, now_ns, last=beyond_bytes == 0))
        else:
            charged_ns = int(times.charge_head(work, amount, forwarded_ns, now_ns))
            self._paying = head
        if times.rtt_due <= 0:
            self._attention.needs_settle = True
        client.usage.request_ns += charged_ns
        if head.cell is not None:
            head.cell.handler_ns += charged_ns
        group = client.request(now_ms)
        if group is None:
            if client.is_exempt:
                client.exempt(charged_ns, now_ms)
            return 0
        throttle_ms = group.record(charged_ns * PERCENT_PER_NANOSECOND, now_ms)
        if self._meter is not None:
            if throttle_ms <= 0:
                self._meter.passed(group, charged_ns, now_ms, self._number, head.index)
            else:
                self._timed_group, self._charged_ns = group, charged_ns
        return throttle_ms

    def _pay_rest(self, head: RequestContext, now_ms: int, now_ns: int) -> None:
        """The end of an answer is here: what it cost beyond what its head was charged for counts without a verdict, as in Kafka."""
        self._paying = None
        if self.times is None:
            return
        rest_ns, client = int(self.times.charge_end(now_ns)), head.client
        client.usage.request_ns += rest_ns
        if head.cell is not None:
            head.cell.handler_ns += rest_ns
        group = client.request(now_ms)
        if rest_ns and group is not None:
            group.record_unchecked(rest_ns * PERCENT_PER_NANOSECOND, now_ms)
            if self._meter is not None:
                self._meter.record_unchecked(group, rest_ns, now_ms, self._number, head.index)

    def _postpone(self, time_ms: int, head: RequestContext, now_ms: int) -> None:
        """The time of a question of ours gave a verdict: whoever made us ask waits for it with the answer to its own request."""
        self._questions_ms = time_ms
        group, self._timed_group = self._timed_group, None
        if self._meter is not None and group is not None:
            applied_ms = 0 if head.client.enforcement.only_observes else time_ms
            self._meter.record(group, self._charged_ns, time_ms, applied_ms, now_ms, self._number, head.index)

    def _judge_questions(self, client: ClientQuota, now_ms: int) -> None:
        """Take in that verdict, on a request that is answered here."""
        time_ms, self._questions_ms = self._questions_ms, 0
        group = client.request(now_ms) if time_ms > 0 else None
        if group is not None:
            client.request_throttled(group, time_ms, now_ms)
            self._debt.judge(client, time_ms, group, now_ms, now_ms, len(self._in_flight))

    def _take_times(self) -> ConnectionHandlerTime:
        """From here on the time of answers is taken."""
        self.times = ConnectionHandlerTime(self._classifier.broker_times)
        return self.times

    def pause(self) -> None:
        """The broker is not read from now on."""
        (self.times or self._take_times()).pause()

    def resume(self, now_ns: int) -> None:
        """It is read again."""
        if self.times is not None:
            self.times.resume(now_ns)

    def _judge_changes(self, head: RequestContext, received_ms: int, time_ms: int, now_ms: int) -> int:
        """What became of topics is charged: return milliseconds to announce in the answer that told of it."""
        ticket = head.ticket
        assert isinstance(ticket, PendingMutation)
        throttle_ms = self._changes_ms
        if self._meter is not None and time_ms > 0:
            self._note_verdict(head, None, 0, throttle_ms, time_ms, now_ms)
        elif throttle_ms > 0 and head.cell is not None:
            head.cell.throttled(throttle_ms, waits=not head.client.enforcement.only_observes)
        if throttle_ms <= 0 >= time_ms and not self._debt.active:
            return 0
        if time_ms > 0 and time_ms >= throttle_ms:
            return self._judge_time(head, time_ms, received_ms, now_ms)
        if throttle_ms > 0:
            head.client.mutation_throttled(ticket.group, throttle_ms, now_ms)
        return self._debt.judge(
            head.client, throttle_ms, ticket.group, now_ms, received_ms, len(self._in_flight), outlives=not is_strict(head.api)
        )


def _applied_ms(waits_ms: int, throttle_ms: int, *, only_observes: bool) -> int:
    return waits_ms if waits_ms >= throttle_ms or only_observes else EXCUSED_MS
