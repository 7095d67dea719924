"""Requests that are looked at as a whole before they go on: logins, changes of topics, what is answered here."""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import ProtocolError
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
from proxy.session.attention import Attention
from proxy.session.in_flight import InFlight
from proxy.session.login.login import Login
from proxy.session.looked import AT_ONCE_BYTES
from proxy.session.mutations.filter import ControllerMutationFilter, MutationDecision, plain_head, question_head
from proxy.session.mutations.probes import CORRELATION_ID
from proxy.session.request_context import ADMIN, LOGIN, MUTATION, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.kept_requests import INT32, RequestBytes, Stop
from proxy.session.throttle.throttle_state import ThrottleState

Step = tuple[bytes | bytearray, int, int, bool]
"""The bytes as they go on, where in them the next request begins, how many requests were noted, and whether scanning goes on."""


class WholeRequests(RequestBytes):
    """Those of one connection."""

    __slots__ = ("_classifier", "_login", "_looked_bytes", "_mutations", "_reply")

    def __init__(
        self,
        in_flight: InFlight,
        attention: Attention,
        debt: ThrottleState,
        frame_bytes_max: int,
        heads: RequestClassifier,
        reply: Callable[[int, RequestContext], bytes],
        login: Login,
    ) -> None:
        super().__init__(in_flight, attention, debt, frame_bytes_max)
        self._classifier = heads
        self._reply = reply
        self._login = login
        self._looked_bytes = 0  # of requests that were looked at as a whole in this call
        self._mutations: ControllerMutationFilter | None = None  # made when it is needed: few connections make or delete topics

    def _take_whole(
        self, head: RequestContext, data: bytes | bytearray, start: int, at: int, size: int, now_ms: int, now_ns: int, read_ms: int
    ) -> Step:
        """Deal with the request at `at`, of a kind that is none of the data path's."""
        kind = head.kind
        if kind == MUTATION:
            if self._worked is None and not self._mutation_gate().judges(head, now_ms):
                return self._note(plain_head(head), data, at, size, now_ns, read_ms)
            size_max = MAX_CHANGE_REQUEST_BYTES
        elif kind == LOGIN:
            size_max = self._login.frame_bytes_max
        elif kind >= ADMIN:
            if kind != ADMIN and size > MAX_CONFIG_REQUEST_BYTES:
                return self._note(plain_head(head), data, at, size, now_ns, read_ms)
            size_max = MAX_QUOTA_REQUEST_BYTES
        else:
            size_max = MAX_HEADER_BYTES
        end = at + LENGTH_BYTES + size
        if end > len(data):
            if kind == MUTATION and not self._may_have_topics(head, data, start, at, end):
                return data, at, 0, False
            self._keep_whole(data, start, at, size, size_max)
            return data, at, 0, False
        if kind == MUTATION:
            return self._change_topics(head, data, start, at, size, now_ms, now_ns, read_ms)
        if kind == LOGIN:
            return self._log_in(head, data, start, at, size, now_ns, read_ms)
        if kind >= ADMIN:
            is_ours = kind == ADMIN or self._is_for_us(head, data, at, end, read_ms)
            if is_ours is None:
                return data[:at], at, 0, False
            if is_ours:
                return self._take_in(head, data, start, at, size, read_ms)
            return self._note(plain_head(head), data, at, size, now_ns, read_ms)
        (correlation_id,) = INT32.unpack_from(data, at + LENGTH_BYTES + INT32.size)
        self._in_flight.append_reply(self._reply(correlation_id, head), head, size, read_ms, now_ns)
        self._attention.needs_settle = True
        return data[:at] + data[end:], at, 0, True

    def _may_have_topics(self, head: RequestContext, data: bytes | bytearray, start: int, at: int, end: int) -> bool:
        """Look at the number of topics before the rest of them is kept. False: it is met again when what is before it went on."""
        try:
            check_topic_count(head.api, data, at + HEAD_BYTES + len(head.prefix), end)
        except ProtocolError:
            if at == start:
                raise
            self._defer(data, at)
            return False
        return True

    def _is_for_us(self, head: RequestContext, data: bytes | bytearray, at: int, end: int, read_ms: int) -> bool | None:
        """Whether a request for configurations names users or clients; None: it is long and kept until that is known."""
        worked, self._worked = self._worked, None
        if worked is not None:
            return bool(worked)
        if self._is_long(end - at):
            self._look_in_steps(is_for_us(head.api, memoryview(data)[at:end]), data, at, read_ms)
            return None
        return finished(is_for_us(head.api, memoryview(data)[at:end]))

    def _is_long(self, size: int) -> bool:
        """Count a request that is looked at as a whole; return whether this one is too much for one call, with those before it."""
        self._looked_bytes += size
        return self._looked_bytes > AT_ONCE_BYTES

    def _note(self, head: RequestContext, data: bytes | bytearray, at: int, size: int, now_ns: int, read_ms: int) -> Step:
        """Let the request at `at` go on as it is."""
        (correlation_id,) = INT32.unpack_from(data, at + LENGTH_BYTES + INT32.size)
        self._in_flight.append((correlation_id, head, size, read_ms, now_ns))
        head.client.usage.requests[head.key] += 1
        return data, at + size + LENGTH_BYTES, 1, True

    def _mutation_gate(self) -> ControllerMutationFilter:
        if self._mutations is None:
            self._mutations = self._classifier.mutation_gate()
        return self._mutations

    def _change_topics(
        self, head: RequestContext, data: bytes | bytearray, start: int, at: int, size: int, now_ms: int, now_ns: int, read_ms: int
    ) -> Step:
        """Judge the whole request at `at`, which makes or deletes topics. With a stop it, or what is behind it, is kept back."""
        end = at + LENGTH_BYTES + size
        in_flight, gate = self._in_flight, self._mutation_gate()
        may_wait = not self.ungated
        if may_wait and in_flight and gate.waits_for_its_turn(head):
            self._keep(data, at, read_ms)
            self.stop = Stop.ALONE
            return data[:at], at, 0, False
        passage, self._worked = self._worked, None
        if passage is None:
            if self._is_long(size):
                self._look_in_steps(gate.judge(head, memoryview(data)[at:end], may_wait=may_wait), data, at, read_ms)
                return data[:at], at, 0, False
            try:
                passage = finished(gate.judge(head, memoryview(data)[at:end], may_wait=may_wait), now_ms)
            except ProtocolError:
                if at == start:
                    raise
                self._defer(data, at)
                return data[:at], at, 0, False
        assert isinstance(passage, MutationDecision)
        for question in passage.questions:
            in_flight.append((CORRELATION_ID, question_head(question, head), len(question.frame) - LENGTH_BYTES, now_ms, now_ns))
        asked = b"".join(question.frame for question in passage.questions)
        if passage.waits:
            self._keep(data, at, read_ms)
            self.stop = Stop.ALONE
            return data[:at] + asked, at + len(asked), 0, False
        (correlation_id,) = INT32.unpack_from(data, at + LENGTH_BYTES + INT32.size)
        head.client.usage.requests[head.key] += 1
        if passage.head is not None:
            onward_size = size if passage.frame is None else len(passage.frame) - LENGTH_BYTES
            in_flight.append((correlation_id, passage.head, onward_size, read_ms, now_ns))
            if passage.frame is None and not asked:
                return data, end, 1, True
            onward = asked + (data[at:end] if passage.frame is None else passage.frame)
            return data[:at] + onward + data[end:], at + len(onward), 1, True
        assert passage.refusal is not None
        self._attention.needs_settle = True
        if not may_wait:  # its verdict is not awaited any more
            reply, _ = passage.refusal.answer(passage.refusal.left_ms(now_ms))
            in_flight.append_reply(reply, head, size, read_ms, now_ns)
            return data[:at] + data[end:], at, 1, True
        in_flight.append_reply(passage.refusal, head, size, read_ms, now_ns)
        self._keep(data, end, read_ms)  # what is behind it waits for the verdict
        self.stop = Stop.ALONE
        return data[:at], at, 1, False

    @property
    def token_bytes_max(self) -> int:
        """The largest request of a login, or bare token, that may come now."""
        return self._login.frame_bytes_max

    def _log_in(self, head: RequestContext, data: bytes | bytearray, start: int, at: int, size: int, now_ns: int, read_ms: int) -> Step:
        """Watch a message of a login go to the broker; what is behind it waits for the answer."""
        end = at + LENGTH_BYTES + size
        try:
            with memoryview(data) as whole, whole[at:end] as frame:
                self._login.requested(head.api, frame, head.head_bytes)
        except ProtocolError:
            if at == start:
                raise
            self._defer(data, at)
            return data, at, 0, False
        self._debt.logs_in(read_ms)
        self._keep(data[end:], 0, read_ms)
        self.stop = Stop.LOGIN
        data, at, noted, _ = self._note(head, data, at, size, now_ns, read_ms)
        return data, at, noted, False

    def _take_in(self, head: RequestContext, data: bytes | bytearray, start: int, at: int, size: int, read_ms: int) -> Step:
        """Take the request at `at` to be answered here, when nothing is in flight; until then it is kept with what is behind it."""
        if self._in_flight:
            self._keep(data, at, read_ms)
            self.stop = Stop.OURS
            return data, at, 0, False
        end = at + LENGTH_BYTES + size
        try:
            self.administered = read_administered(head, bytes(data[at:end]))
        except ProtocolError:
            if at == start:
                raise
            self._defer(data, at)
            return data, at, 0, False
        head.client.usage.requests[head.key] += 1
        self._keep(data, end, read_ms)
        self.stop = Stop.ANSWERED
        return data, at, 1, False
