"""The effect of a response on the quotas of its client: each response is recorded once, and its bytes, time or changes are judged."""

from __future__ import annotations

from itertools import islice

from protocol.limits import LENGTH_BYTES
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.paced.group import PacedGroup
from proxy.meter.record import RUN_VALUE_END
from proxy.session.in_flight import InFlight
from proxy.session.mutations.charge import is_strict
from proxy.session.mutations.pending import PendingMutation
from proxy.session.parsed_response import ParsedResponse
from proxy.session.request_context import FETCH, LOGIN, MUTATION, PACED_ANSWER, PASS, PRODUCE, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.responses.answer_bytes import fetched_bytes
from proxy.session.responses.login_responses import LoginResponses
from proxy.session.responses.request_time_verdicts import ANNOUNCES, NOT_CHARGED, RequestTimeVerdicts, applied_ms
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.paced_admission import announced_ms
from proxy.session.throttle.throttle_state import ThrottleState
from proxy.telemetry.latency import SHIFT


class AnswerVerdicts:
    """Records the responses of one connection, and applies the verdicts.

    Attributes:
        request_time: the same for their handler time.
        meter: receives decisions; None: nothing is metered.
    """

    __slots__ = (
        "_classifier",
        "_fetch_admission",
        "_in_flight",
        "_login_responses",
        "_number",
        "_throttle",
        "meter",
        "request_time",
    )

    compares = False
    """whether `_judge_and_compare` sees each response, to compare the broker's throttle time"""

    def __init__(
        self,
        in_flight: InFlight,
        throttle: ThrottleState,
        fetch_admission: FetchAdmission,
        classifier: RequestClassifier,
        request_time: RequestTimeVerdicts,
        login_responses: LoginResponses,
    ) -> None:
        self._in_flight = in_flight
        self._throttle = throttle
        self._fetch_admission = fetch_admission
        self._classifier = classifier
        self._login_responses = login_responses
        self._number = classifier.number
        self.request_time = request_time
        self.meter = classifier.meter

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

    def record(
        self,
        data: bytes | memoryview,
        at: int,
        size: int,
        parsed: ParsedResponse | None,
        now_ms: int,
        now_ns: int,
        *,
        is_timed: bool,
    ) -> int:
        """Remove the oldest request from the FIFO, and record its response; return the throttle time to announce, in ms.

        Args:
            data: bytes of the broker; the response begins at `at`, and may continue behind them.
            size: its size, without its length field, in bytes.
            parsed: its parsed content, where it was parsed before this.
            now_ms, now_ns: the time, in monotonic milliseconds and nanoseconds.
            is_timed: whether a quota needs handler times.

        Raises:
            ProtocolError: it answers a login, and is invalid, or the client may not log in.
        """
        in_flight = self._in_flight
        _, head, request_size, received_ms, forwarded_ns = in_flight.popleft()
        self.request_time.answers += 1
        head.latencies[(now_ns - forwarded_ns >> SHIFT).bit_length()] += 1
        kind, amount, time_ms = head.kind, 0, 0
        if kind == PRODUCE:
            amount = request_size
        elif kind == FETCH:
            amount = fetched_bytes(head.api, data, at, size)
        head.count(1, request_size, size, amount)
        frame_bytes = size + LENGTH_BYTES
        if is_timed and head.work is not None:
            time_ms = self._time_ms(head, data, at, frame_bytes, request_size, forwarded_ns, now_ms, now_ns)
            if time_ms == ANNOUNCES:
                judged_ms = self._judge_otherwise(head, data[at : at + frame_bytes], amount, parsed, received_ms, 0, now_ms)
                return max(judged_ms, self.request_time.schedule_wait_ms)
        elif kind == PASS:
            if self._throttle.active:
                self._throttle.pass_answer()
            return 0
        if kind < MUTATION and not self.compares:
            return self.judge(head, amount, received_ms, time_ms, now_ms)
        frame = data[at : at + frame_bytes]
        return self._judge_otherwise(head, frame, amount, parsed, received_ms, time_ms, now_ms)

    def _time_ms(
        self,
        head: RequestContext,
        data: bytes | memoryview,
        at: int,
        frame_bytes: int,
        request_size: int,
        forwarded_ns: int,
        now_ms: int,
        now_ns: int,
    ) -> int:
        """Charge the request time of a response; return the throttle time in ms."""
        timed = self.request_time
        assert head.work is not None
        if head.work.of_login and timed.is_free(head, data, at, frame_bytes):
            return 0
        if timed.charged_ms == NOT_CHARGED:
            behind_bytes = len(data) - at - frame_bytes
            time_ms = timed.take(head, frame_bytes - LENGTH_BYTES, request_size, forwarded_ns, behind_bytes, now_ms, now_ns)
        else:
            time_ms, timed.charged_ms = timed.charged_ms, NOT_CHARGED
        if time_ms > 0 and head.is_question:
            timed.postpone(time_ms, head, now_ms)
            return 0
        return time_ms

    def _judge_otherwise(
        self,
        head: RequestContext,
        frame: bytes | memoryview,
        amount: int,
        parsed: ParsedResponse | None,
        received_ms: int,
        time_ms: int,
        now_ms: int,
    ) -> int:
        """Apply the response to a login or to changes of topics, or compare the throttle time with the broker's; as `judge`."""
        if head.kind < MUTATION:
            return self._judge_and_compare(head, frame, amount, received_ms, time_ms, now_ms)
        if head.kind == PACED_ANSWER:
            return self._judge_produced(head, received_ms, time_ms, now_ms)
        if head.kind == LOGIN:
            self._login_responses.record(head, frame, received_ms, is_judged=time_ms > 0)
            return self._judge_login(head, time_ms, received_ms, now_ms) if time_ms > 0 else 0
        changes_ms = 0 if parsed is None else parsed.throttle_ms
        return self._judge_changes(head, changes_ms, received_ms, time_ms, now_ms)

    def _judge_and_compare(
        self, head: RequestContext, frame: bytes | memoryview, amount: int, received_ms: int, time_ms: int, now_ms: int
    ) -> int:
        """Do what `judge` does; `frame` is the available part of the response."""
        return self.judge(head, amount, received_ms, time_ms, now_ms)

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
        return self.request_time.judge(head, time_ms, received_ms, now_ms)

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

    def _judge_produced(self, head: RequestContext, received_ms: int, time_ms: int, now_ms: int) -> int:
        """Return the throttle time to announce in the response to a Produce that a schedule has admitted, in ms: the longer of two."""
        return max(self.judge(head, 0, received_ms, time_ms, now_ms), announced_ms(head.client, now_ms))

    def _note_verdict(
        self, head: RequestContext, group: EnforcedGroup | None, amount: int, throttle_ms: int, time_ms: int, now_ms: int
    ) -> None:
        """Meter verdicts with the delay of the client: the longer of the two, or less where the client is excused."""
        waits_ms = throttle_ms if throttle_ms > time_ms and group is not None else min(time_ms, self.request_time.wait_max_ms(head))
        only_observes = head.client.enforcement.only_observes
        if only_observes:
            waits_ms = 0
        if head.cell is not None:
            decided_ms = max(throttle_ms, time_ms)
            head.cell.throttled(decided_ms, waits=waits_ms >= decided_ms)
        self.request_time.meter_verdict(head, time_ms, waits_ms, now_ms)
        if group is not None:
            assert self.meter is not None
            throttle_ms = max(throttle_ms, 0)
            applied = applied_ms(waits_ms, throttle_ms, only_observes=only_observes)
            self.meter.record(group, amount, throttle_ms, applied, now_ms, self._number, head.index)

    def _judge_login(self, head: RequestContext, time_ms: int, received_ms: int, now_ms: int) -> int:
        """Apply the verdict on the time of a login message that is charged like any request."""
        if self.meter is not None:
            self._note_verdict(head, None, 0, 0, time_ms, now_ms)
        return self.request_time.judge(head, time_ms, received_ms, now_ms)

    def _judge_changes(self, head: RequestContext, throttle_ms: int, received_ms: int, time_ms: int, now_ms: int) -> int:
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
            return self.request_time.judge(head, time_ms, received_ms, now_ms)
        if throttle_ms > 0:
            head.client.mutation_throttled(ticket.group, throttle_ms, now_ms)
        return self._throttle.judge(
            head.client, throttle_ms, ticket.group, now_ms, received_ms, len(self._in_flight), outlives=not is_strict(head.api)
        )
