"""Requests that are parsed whole before they are forwarded: logins, changes of topics, requests that Sluice answers."""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import (
    HEAD_BYTES,
    LENGTH_BYTES,
    MAX_CHANGE_REQUEST_BYTES,
    MAX_CONFIG_REQUEST_BYTES,
    MAX_HEADER_BYTES,
    MAX_QUOTA_REQUEST_BYTES,
)
from protocol.messages.topic_changes import check_topic_count
from protocol.steps import finished
from proxy.session.administered import is_for_us, read_administered
from proxy.session.in_flight import InFlight, OwnReplies
from proxy.session.login.login import Login
from proxy.session.mutations.filter import ControllerMutationFilter, MutationDecision, plain_head, question_head
from proxy.session.mutations.pending import Refusal
from proxy.session.mutations.probes import CORRELATION_ID
from proxy.session.parsed_response import AT_ONCE_BYTES
from proxy.session.request_context import ADMIN, ANSWER, CONFIGS, LOGIN, MUTATION, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.pending_requests import PendingRequests, Stop
from proxy.session.requests.whole.found_request import FoundRequest, ScanStep, left_out, stopped
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.throttle_state import ThrottleState


class WholeRequests:
    """Those requests of one connection.

    Attributes:
        parsed_bytes: bytes of the requests that were parsed in this scan.
    """

    __slots__ = (
        "_classifier",
        "_in_flight",
        "_login",
        "_mutations",
        "_own_replies",
        "_pending",
        "_reply",
        "_settle_flag",
        "_throttle",
        "parsed_bytes",
    )

    def __init__(
        self,
        in_flight: InFlight,
        settle_flag: SettleFlag,
        throttle: ThrottleState,
        pending: PendingRequests,
        classifier: RequestClassifier,
        own_replies: OwnReplies,
        reply: Callable[[int, RequestContext], bytes],
        login: Login,
    ) -> None:
        self._in_flight = in_flight
        self._settle_flag = settle_flag
        self._throttle = throttle
        self._pending = pending
        self._classifier = classifier
        self._own_replies = own_replies
        self._reply = reply
        self._login = login
        self._mutations: ControllerMutationFilter | None = None  # created when needed: few connections create or delete topics
        self.parsed_bytes = 0

    def take(self, request: FoundRequest) -> ScanStep:
        """Handle a request whose kind the data path does not handle.

        Raises:
            ProtocolError: it does not match its version, or is too large, and no other request is before it.
        """
        kind = request.context.kind
        if not self._is_parsed_whole(request):
            return self._note(plain_head(request.context), request)
        if request.end > len(request.data):
            if kind != MUTATION or self._may_have_topics(request):
                self._await_rest(request)
            return ScanStep(request.data, request.at, 0, goes_on=False)
        if kind == MUTATION:
            return self._change_topics(request)
        if kind == LOGIN:
            return self._log_in(request)
        return self._answer(request) if kind == ANSWER else self._take_in_if_ours(request)

    def _is_parsed_whole(self, request: FoundRequest) -> bool:
        """Whether a request has to be buffered whole: not a change of topics without a quota, nor one that sets too much for one user."""
        kind = request.context.kind
        if kind == MUTATION:
            return self._pending.worked is not None or self._filter().judges(request.context, request.now_ms)
        return kind < CONFIGS or request.size <= MAX_CONFIG_REQUEST_BYTES

    def _size_max(self, kind: int) -> int:
        """Return the maximum size of such a request."""
        if kind == MUTATION:
            return MAX_CHANGE_REQUEST_BYTES
        if kind == LOGIN:
            return self._login.frame_bytes_max
        return MAX_QUOTA_REQUEST_BYTES if kind >= ADMIN else MAX_HEADER_BYTES

    def _await_rest(self, request: FoundRequest) -> None:
        """Keep a request until it is complete."""
        size, size_max = request.size, self._size_max(request.context.kind)
        if size <= size_max:
            self._pending.keep_tail(request.data[request.at :], size + LENGTH_BYTES)
        elif request.at > request.start:
            self._pending.defer(request.data, request.at)
        else:
            raise FrameSizeError(f"request of {size} bytes that has to be complete, limit {size_max}")

    def _may_have_topics(self, request: FoundRequest) -> bool:
        """Check the number of topics before the rest of a request is kept. False: the request is handled again after those before it."""
        context = request.context
        try:
            check_topic_count(context.api, request.data, request.at + HEAD_BYTES + len(context.prefix), request.end)
        except ProtocolError as error:
            self._defer(request, error)
            return False
        return True

    def _defer(self, request: FoundRequest, error: ProtocolError) -> None:
        """Refuse an invalid request, after the requests before it were forwarded."""
        if request.at == request.start:
            raise error
        self._pending.defer(request.data, request.at)

    def _answer(self, request: FoundRequest) -> ScanStep:
        """Enter a reply of Sluice's own in place of the request, which is not forwarded."""
        context = request.context
        reply = self._reply(request.correlation_id, context)
        self._own_replies.append(reply, context, request.size, request.read_ms, request.now_ns)
        self._settle_flag.needs_settle = True
        return left_out(request, 0)

    def _take_in_if_ours(self, request: FoundRequest) -> ScanStep:
        """Answer a request about quotas; one about configurations only when it names users or clients."""
        is_ours = request.context.kind == ADMIN or self._is_for_us(request)
        if is_ours is None:
            return stopped(request)
        return self._take_in(request) if is_ours else self._note(plain_head(request.context), request)

    def _is_for_us(self, request: FoundRequest) -> bool | None:
        """Whether a configuration request names users or clients; None: it is long, and kept until that is known."""
        worked = self._pending.take_worked()
        if worked is not None:
            return bool(worked)
        parsing = is_for_us(request.context.api, request.frame)
        if self._is_long(request.size + LENGTH_BYTES):
            self._pending.parse_in_steps(parsing, request.data, request.at, request.read_ms)
            return None
        return finished(parsing)

    def _is_long(self, size: int) -> bool:
        """Count a request that is parsed whole; return whether it is too much for one call, with those before it."""
        self.parsed_bytes += size
        return self.parsed_bytes > AT_ONCE_BYTES

    def _note(self, context: RequestContext, request: FoundRequest) -> ScanStep:
        """Forward the request as it is."""
        self._in_flight.append((request.correlation_id, context, request.size, request.read_ms, request.now_ns))
        context.client.usage.requests[context.key] += 1
        return ScanStep(request.data, request.end, 1, goes_on=True)

    def _filter(self) -> ControllerMutationFilter:
        if self._mutations is None:
            self._mutations = self._classifier.mutation_gate()
        return self._mutations

    def _change_topics(self, request: FoundRequest) -> ScanStep:
        """Check a request that creates or deletes topics. With a stop the request, or those behind it, are kept."""
        if request.may_wait and self._in_flight and self._filter().waits_for_its_turn(request.context):
            self._pending.keep(request.data, request.at, request.read_ms, Stop.NONE_IN_FLIGHT)
            return stopped(request)
        decision = self._pending.take_worked()
        if decision is None:
            decision = self._decide(request)
            if decision is None:
                return stopped(request)
        assert isinstance(decision, MutationDecision)
        asked = self._ask(decision, request)
        data, at = request.data, request.at
        if decision.waits:
            self._pending.keep(data, at, request.read_ms, Stop.NONE_IN_FLIGHT)
            return ScanStep(data[:at] + asked, at + len(asked), 0, goes_on=False)
        context = request.context
        context.client.usage.requests[context.key] += 1
        if decision.head is None:
            assert decision.refusal is not None
            return self._refuse(decision.refusal, request)
        onward_size = request.size if decision.frame is None else len(decision.frame) - LENGTH_BYTES
        self._in_flight.append((request.correlation_id, decision.head, onward_size, request.read_ms, request.now_ns))
        if decision.frame is None and not asked:
            return ScanStep(data, request.end, 1, goes_on=True)
        onward = asked + (data[at : request.end] if decision.frame is None else decision.frame)
        return ScanStep(data[:at] + onward + data[request.end :], at + len(onward), 1, goes_on=True)

    def _decide(self, request: FoundRequest) -> MutationDecision | None:
        """Check a request that creates or deletes topics; None: it is kept, because it is long, or invalid and not the first."""
        parsing = self._filter().judge(request.context, request.frame, may_wait=request.may_wait)
        if self._is_long(request.size):
            self._pending.parse_in_steps(parsing, request.data, request.at, request.read_ms)
            return None
        try:
            return finished(parsing, request.now_ms)
        except ProtocolError as error:
            self._defer(request, error)
            return None

    def _ask(self, decision: MutationDecision, request: FoundRequest) -> bytes:
        """Enter the probes of a decision in the FIFO; return their frames."""
        for question in decision.questions:
            context, size = question_head(question, request.context), len(question.frame) - LENGTH_BYTES
            self._in_flight.append((CORRELATION_ID, context, size, request.now_ms, request.now_ns))
        return b"".join(question.frame for question in decision.questions)

    def _refuse(self, refusal: Refusal, request: FoundRequest) -> ScanStep:
        """Enter a refusal in place of a request that is not forwarded."""
        own_replies, context = self._own_replies, request.context
        self._settle_flag.needs_settle = True
        if not request.may_wait:  # its verdict is not awaited any more
            reply, _ = refusal.answer(refusal.left_ms(request.now_ms))
            own_replies.append(reply, context, request.size, request.read_ms, request.now_ns)
            return left_out(request, 1)
        own_replies.append(refusal, context, request.size, request.read_ms, request.now_ns)
        self._pending.keep(request.data, request.end, request.read_ms, Stop.NONE_IN_FLIGHT)  # requests behind it wait for the verdict
        return stopped(request, 1)

    def _log_in(self, request: FoundRequest) -> ScanStep:
        """Observe a message of a login that is forwarded; requests behind it wait for the response."""
        try:
            with memoryview(request.data) as whole, whole[request.at : request.end] as frame:
                self._login.requested(request.context.api, frame, request.context.head_bytes)
        except ProtocolError as error:
            self._defer(request, error)
            return ScanStep(request.data, request.at, 0, goes_on=False)
        self._throttle.logs_in(request.read_ms)
        self._pending.keep(request.data[request.end :], 0, request.read_ms, Stop.LOGIN)
        return self._note(request.context, request)._replace(goes_on=False)

    def _take_in(self, request: FoundRequest) -> ScanStep:
        """Take a request that Sluice answers when nothing is in flight; until then it is kept with those behind it."""
        pending, context = self._pending, request.context
        if self._in_flight:
            pending.keep(request.data, request.at, request.read_ms, Stop.OWN_ANSWER)
            return ScanStep(request.data, request.at, 0, goes_on=False)
        try:
            pending.administered = read_administered(context, bytes(request.frame))
        except ProtocolError as error:
            self._defer(request, error)
            return ScanStep(request.data, request.at, 0, goes_on=False)
        context.client.usage.requests[context.key] += 1
        pending.keep(request.data, request.end, request.read_ms, Stop.ANSWERED)
        return ScanStep(request.data, request.at, 1, goes_on=False)
