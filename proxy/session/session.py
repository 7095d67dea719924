"""The decisions for one client connection and its broker connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from protocol.api_keys import MAX_VERSIONS, ApiKey, ApiVersion
from protocol.errors import ProtocolError
from protocol.limits import LENGTH_BYTES, MAX_EARLY_FRAME_BYTES
from protocol.messages.api_versions import fallback_response
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.quota_scope import QuotaScope
from proxy.handler_time import BrokerHandlerTime, work_of
from proxy.meter.usage import Place
from proxy.session.administered import CORRELATION_ID, BrokersAnswer
from proxy.session.in_flight import InFlight, OwnReplies
from proxy.session.login.identity import OPEN, IdentityRules, Peer, TlsPeer
from proxy.session.login.login import Login
from proxy.session.reading import Reading
from proxy.session.request_context import AS_IT_IS, FETCH, PASS, WHOLE, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.pending_requests import Stop
from proxy.session.requests.request_side import RequestSide
from proxy.session.responses.answer_verdicts import AnswerVerdicts
from proxy.session.responses.login_responses import LoginResponses
from proxy.session.responses.request_time_verdicts import RequestTimeVerdicts
from proxy.session.responses.response_side import ResponseSide
from proxy.session.responses.shadow import ShadowResponseSide, ShadowVerdicts
from proxy.session.responses.unanswered import UnansweredRequests
from proxy.session.rewrite import Rewriter
from proxy.session.settings import SessionSettings
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.throttle_state import ThrottleState
from quota.entity import KafkaPrincipal
from quota.groups.declared_groups import Member, Origin
from quota.maker import maker_at


class Session:
    """One connection's decisions. Bytes go in at `requests.scan` and `responses.scan`, which return the bytes to send."""

    __slots__ = (
        "_classifier",
        "_counted",
        "_host",
        "_listener",
        "_own_replies",
        "_rewriter",
        "_settings",
        "_unanswered",
        "buffer",
        "fetch_admission",
        "in_flight",
        "login",
        "reading",
        "requests",
        "responses",
        "settle_flag",
        "throttle",
    )

    def __init__(
        self,
        settings: SessionSettings,
        rewriter: Rewriter,
        rules: IdentityRules = OPEN,
        peer: Peer = ("", 0),
        tls: TlsPeer | None = None,
    ) -> None:
        self._settings = settings
        self._rewriter = rewriter
        self._counted: KafkaPrincipal | None = None  # the maker that this connection counts for
        self._unanswered: UnansweredRequests | None = None  # set when the connection has ended and fetches have no response
        number = settings.next_number()
        self._listener = rules.listener
        self._host = peer[0]
        self._classifier = RequestClassifier(
            settings, rewriter, number, rules.before_login(peer, tls), self._origin(), maker_at(self._listener, self._host)
        )
        self.login = self._classifier.login = Login(rules, peer, settings.counters, self._identified, tls)
        self.in_flight: InFlight = deque()
        self._own_replies = OwnReplies(self.in_flight)
        self.settle_flag = SettleFlag()
        self.buffer = settings.buffers.open(self._host)
        self.throttle = ThrottleState(self.settle_flag)
        self.fetch_admission = FetchAdmission(is_metered=settings.meter is not None)
        self.requests = RequestSide(
            self.in_flight,
            self.settle_flag,
            self.throttle,
            self.fetch_admission,
            self._classifier,
            self._own_replies,
            _own_reply,
            min(settings.frame_bytes_max, MAX_EARLY_FRAME_BYTES) if rules.requires_login else settings.frame_bytes_max,
            self.login,
        )
        login_responses = LoginResponses(self.settle_flag, self.throttle, self._classifier, self.login)
        make_responses = ShadowResponseSide if settings.shadows else ResponseSide
        self.responses = make_responses(
            self.in_flight,
            self.requests,
            self.settle_flag,
            self.throttle,
            self.fetch_admission,
            rewriter,
            self._classifier,
            self._own_replies,
            login_responses,
            self._verdicts(login_responses),
        )
        self.reading = Reading(self.in_flight, self.throttle, self.fetch_admission, self.login, self.requests, self.responses)

    def _verdicts(self, login_responses: LoginResponses) -> AnswerVerdicts:
        """Make the object that applies responses to quotas."""
        request_time = RequestTimeVerdicts(self.in_flight, self.settle_flag, self.throttle, self._classifier, self.login)
        parts = (self.in_flight, self.throttle, self.fetch_admission, self._classifier, request_time, login_responses)
        if not self._settings.shadows:
            return AnswerVerdicts(*parts)
        shadow = ShadowVerdicts(*parts)
        shadow.counts = self._settings.counters.shadow
        return shadow

    @property
    def number(self) -> int:
        """The number of the connection in this process, from 1 in the order of arrival."""
        return self._classifier.number

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The client-ids of this connection, the first few."""
        return self._classifier.client_ids

    def member(self, client_id: str) -> Member | None:
        """The principal with its declared group for this client-id; None: unknown."""
        principal, groups = self._classifier.principal, self._classifier.origin
        return None if principal is None else Member(principal, groups.group_of(principal.name, client_id))

    @property
    def principal(self) -> KafkaPrincipal | None:
        """The principal of the client; None: unknown, and the connection has to end."""
        return self._classifier.principal

    def settle(self, now_ms: int) -> None:
        """Update the state that depends on responses and on time, before the connection asks for the next step.

        Raises:
            ProtocolError: a response of the broker is invalid, or must not be sent.
        """
        if self.responses.broken is not None:
            raise self.responses.broken
        ahead = self.requests.ahead
        if ahead is not None and ahead.is_noted:
            ahead.settle(now_ms)

    @property
    def is_unsettled(self) -> bool:
        """Whether an event, or the time, may change what the connection has to do."""
        requests = self.requests
        return bool(
            self.buffer.reserved_bytes
            or self.responses.held.until_ms
            or requests.pending.stop
            or self.throttle.active
            or (requests.ahead is not None and requests.ahead.is_noted)
            or self._own_replies.are_due
            or requests.pending.administered is not None
        )

    @property
    def wants_rtt(self) -> bool:
        """Whether the round-trip time to the broker has to be measured again."""
        times = self.responses.request_time.times
        return times is not None and times.rtt_due <= 0

    def set_rtt(self, rtt_ns: int) -> None:
        """Store the shortest round-trip time to the broker that the kernel measured."""
        times = self.responses.request_time.times
        if times is not None:
            times.set_rtt(rtt_ns)

    @property
    def is_quiet(self) -> bool:
        """Whether no request or response is in flight, kept, held or begun."""
        requests, responses = self.requests, self.responses
        if self.in_flight or requests.pending.stop or requests.in_frame:
            return False
        return not responses.in_frame and not responses.held.until_ms and responses.broken is None

    def ask(self, api: ApiVersion, frame: bytes, now_ms: int, now_ns: int) -> BrokersAnswer:
        """Enter a request of Sluice's own in the FIFO, whose `frame` is sent to the broker now, for the request that Sluice answers."""
        assert self.requests.pending.administered is not None
        answer = BrokersAnswer()
        asked = self.requests.pending.administered.head
        head = RequestContext(api, asked.client, PASS, WHOLE, b"", work_of(api.key), broker=asked.broker)
        head.ticket = answer
        head.is_question = True
        self.in_flight.append((CORRELATION_ID, head, len(frame) - LENGTH_BYTES, now_ms, now_ns))
        return answer

    def answer_administered(self, frame: bytes, now_ms: int, now_ns: int) -> None:
        """Enter the response to the request that Sluice answers; it is sent next, before responses that are not awaited."""
        assert self.requests.pending.administered is not None
        context, self.requests.pending.administered = self.requests.pending.administered.head, None
        self.responses.own.judge_questions(context.client, now_ms)
        self._own_replies.put_first(frame, context, now_ms, now_ns)
        self.responses.request_time.answers += 1
        self.settle_flag.needs_settle = True

    def broker_max(self, key: int) -> int:
        """Return the newest version of an API that every broker so far has, -1 when unknown."""
        return self._rewriter.broker_max(key)

    def rewrite(self, api: ApiVersion, frame: bytes) -> bytes:
        """Return a response of the broker as the client may see it."""
        return frame if self._rewriter.what_for(api) == AS_IT_IS else bytes(self._rewriter.rewrite(api, frame))

    def set_broker_times(self, times: BrokerHandlerTime) -> None:
        """Store the handler times of the broker, which is known now."""
        self._classifier.broker_times = times

    def set_broker_label(self, label: str) -> None:
        """Count the latency of responses for this broker, in place of the broker of the quota scope."""
        self._classifier.broker_label = label

    def set_usage_place(self, place: Place) -> None:
        """Meter the usage of this client at `place`."""
        self._classifier.place = place

    def count_in(self, scope: QuotaScope) -> None:
        """Use another quota scope from now on, because it changed or the broker's node id became known."""
        self._classifier.count_in(scope)
        self.responses.request_time.request_quota = scope.request
        self.requests.forget_heads()

    def settings_changed(self, now_ms: int) -> None:
        """Apply new settings from the next request on; when quotas are only observed, nothing waits any longer."""
        self._classifier.origin = self._origin()
        self.requests.forget_heads()
        self.release_unenforced(now_ms)

    def _origin(self) -> Origin:
        """The origin of the client for the declared groups of now."""
        return self._settings.policy.groups.origin(self._listener, self._host)

    @property
    def waits(self) -> bool:
        """Whether anything waits because of a quota."""
        return (
            self.throttle.active
            or self.throttle.is_throttled
            or self.responses.held.until_ms > 0
            or self.requests.pending.stop is Stop.THROTTLE
        )

    def release_unenforced(self, now_ms: int) -> None:
        """Release what waits for a client that is not enforced any more; a client that still is enforced is checked again, and waits."""
        client = self.throttle.client
        if client is not None and not client.is_enforced:
            self.throttle.cancel()
            self.responses.held.until_ms = min(self.responses.held.until_ms, now_ms)
        if not self.throttle.is_throttled:
            self.requests.pending.resume_at_ms = min(self.requests.pending.resume_at_ms, now_ms)

    def repaced(self, replaced: Mapping[EnforcedGroup, EnforcedGroup], now_ms: int) -> None:
        """Groups got another pacing: requests are resolved again, and one that waits is checked now, unless a throttle is in force."""
        self.requests.forget_heads()
        self.fetch_admission.moved(replaced)
        if not self.throttle.is_throttled:
            self.requests.pending.resume_at_ms = min(self.requests.pending.resume_at_ms, now_ms)

    def _identified(self, principal: KafkaPrincipal, sent_ms: int, session_ends_ms: int) -> None:
        """The broker accepted the login: what follows is the principal's.

        Raises:
            ProtocolError: it has reached its limit of connections.
        """
        if self._counted is None:
            enforcement = self._settings.policy.of_client(self._listener, principal, "")
            only_observes = enforcement is None or enforcement.only_observes
            if not self._settings.principals.enter(principal, only_observes=only_observes):
                raise ProtocolError(f"{principal} has reached its limit of connections", reason="max_connections_per_principal")
            self._counted = principal
        self.throttle.session_begins(sent_ms, session_ends_ms)
        self._classifier.principal = principal
        self.requests.frame_bytes_max = self._settings.frame_bytes_max
        self.requests.forget_heads()

    def leave(self, now_ms: int) -> None:
        """The connection ends: record requests without a response, and leave the remaining throttle to the groups."""
        self.throttle.depart(now_ms)
        request_quota = self.responses.request_time.request_quota
        is_timed = request_quota is not None and request_quota.enabled
        unanswered = UnansweredRequests(self.in_flight, self.throttle, self._classifier, is_timed=is_timed)
        unanswered.record(now_ms, unfinished=self.requests.unfinished)
        if any(context.kind == FETCH for _, context, _, _, _ in self.in_flight):
            unanswered.follow(*self.responses.unscanned)
            unanswered.scan(b"", now_ms)  # a response whose head has arrived is not kept for it
            self._unanswered = unanswered

    def reserve(self, login_bytes: int) -> bool:
        """Reserve the bytes kept here, and `login_bytes` of tokens elsewhere; False: over budget, and the connection has to end."""
        self.buffer.keep(self.requests.pending.reserved_bytes + self.responses.reserved_bytes + login_bytes)
        return not self.buffer.is_evicted

    def let_go(self) -> None:
        """The connection has ended: free what it kept, except a request that is still being answered here."""
        self.buffer.end = None
        if self.buffer.reserved_bytes:
            self.requests.pending.drop()
            self.responses.drop()
            self.buffer.keep(self.requests.pending.reserved_bytes)

    def forget_administered(self) -> None:
        """The request that Sluice answered is done, although the connection has ended."""
        self.requests.pending.administered = None
        self.buffer.keep(self.requests.pending.reserved_bytes)

    def close(self) -> None:
        """Remove the remaining traces in the groups."""
        self.fetch_admission.abandon()
        ahead = self.requests.ahead
        if ahead is not None and ahead.is_noted:
            ahead.release()
        self.login.let_go()
        self._classifier.left()
        if self._counted is not None:
            self._settings.principals.leave(self._counted)
            self._counted = None

    def scan_unanswered(self, data: bytes, now_ms: int) -> None:
        """Follow the broker's bytes although the connection has ended."""
        if self._unanswered is not None:
            self._unanswered.scan(data, now_ms)


def _own_reply(correlation_id: int, _head: RequestContext) -> bytes:
    return fallback_response(correlation_id, MAX_VERSIONS[ApiKey.API_VERSIONS])
