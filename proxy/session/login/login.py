"""Observes the SASL login of a client at the broker; the login itself is between client and broker.

Only the broker decides. A claimed name becomes the principal when the broker reports success; in doubt the principal is unknown. From a
token to the broker's response no other request is forwarded, so that no request is charged to the wrong principal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.api_keys import ApiKey, ApiVersion
from protocol.errors import ProtocolError
from protocol.limits import MAX_EARLY_FRAME_BYTES, MAX_LOGIN_FRAME_BYTES
from protocol.messages.sasl import find_token, read_authenticate_answer, read_handshake_error, read_mechanism
from protocol.primitives import Buffer
from protocol.sasl import Progress, TokenObserver, observer_of
from protocol.sasl.mechanisms import GSSAPI, KNOWN, OAUTHBEARER, PLAIN, READABLE
from protocol.sasl.opaque import is_gssapi_token
from proxy.session.login.identity import IdentityRules, Peer, TlsPeer, is_loopback
from proxy.telemetry.counters import Counters
from quota.entity import KafkaPrincipal

LOGIN_KEYS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
MAY_PRECEDE_LOGIN: Final = LOGIN_KEYS | {ApiKey.API_VERSIONS}
"""Requests that may be sent before the broker reports success, when a login is required."""
OTHER_MECHANISM: Final = "other"
BARE_PENDING_MAX: Final = 16
"""Most unframed tokens without a response; an exchange of GSSAPI has three, of which the broker answers two."""
MESSAGES_FREE_MAX: Final = 16
"""The time of this many messages of one login is not charged; no mechanism of Kafka needs a third of them."""

Identified = Callable[[KafkaPrincipal, int, int], None]
"""Called at each success with the principal, and with the beginning and end of the session (ms, end 0 for none)."""


class Login:
    """The SASL exchanges of one connection: the first, and those that renew the session (KIP-368).

    Attributes:
        required: whether only requests of a login may pass, because a login is configured and has not succeeded.
        awaits: whether a message of the login has no response yet; requests behind it wait.
        under_way: whether a mechanism was accepted and the result is not known.
        free_left: number of further messages of this exchange whose time is not charged.
        bare: whether tokens are sent without frames of a request (handshake v0).
        news: whether the broker has answered a message; the connection resets it.
        refusal: mechanism and claimed user of the login that the broker refused; None: it refused none, or a later one succeeded.
    """

    __slots__ = (
        "_bare_pending",
        "_counters",
        "_identified",
        "_mechanism",
        "_observer",
        "_peer",
        "_rules",
        "_tls",
        "_who",
        "awaits",
        "bare",
        "free_left",
        "news",
        "refusal",
        "required",
        "under_way",
    )

    def __init__(self, rules: IdentityRules, peer: Peer, counters: Counters, identified: Identified, tls: TlsPeer | None = None) -> None:
        self._rules = rules
        self._tls = tls
        self._peer = peer
        self._counters = counters
        self._identified = identified
        self._mechanism = ""
        self._observer: TokenObserver | None = None
        self._who: tuple[str, str | None] | None = None  # mechanism and name of the first success
        self._bare_pending = 0
        self.refusal: str | None = None
        self.free_left = 0
        self.required = rules.requires_login
        self.awaits = False
        self.under_way = False
        self.bare = False
        self.news = False

    @property
    def pending(self) -> bool:
        """Whether the first login has to succeed soon, because it is required or has begun."""
        return self.required or (self.under_way and self._who is None)

    @property
    def frame_bytes_max(self) -> int:
        """The largest request, or unframed token, of a login."""
        return MAX_EARLY_FRAME_BYTES if self._who is None else MAX_LOGIN_FRAME_BYTES

    @property
    def has_succeeded(self) -> bool:
        """Whether the broker accepted a login. The principal may be known only to the broker."""
        return self._who is not None and not self.required

    def let_go(self) -> None:
        """The connection has ended: break the reference cycle, so that it is freed at once."""
        self._identified = _ignore

    # --- messages of the client

    def check(self, api: ApiVersion) -> None:
        """Check a request of another API than the one before it, before it is forwarded.

        Raises:
            ProtocolError: a login is required or under way, and the request is not part of it.
        """
        if self.required and api.key not in MAY_PRECEDE_LOGIN:
            raise ProtocolError(f"{api.name} before a login", reason="login_required")
        if self.under_way and api.key != ApiKey.SASL_AUTHENTICATE:
            raise ProtocolError(f"{api.name} in the middle of a login", reason="login_required")

    def requested(self, api: ApiVersion, frame: Buffer, body_at: int) -> None:
        """Handle a whole SaslHandshake or SaslAuthenticate that is forwarded.

        Raises:
            ProtocolError: it is invalid, or its mechanism is not allowed.
        """
        if api.key == ApiKey.SASL_HANDSHAKE:
            self._requested_mechanism(api, read_mechanism(frame, body_at))
        elif self._observer is not None:
            at, end = find_token(api, frame, body_at)
            self._observer.sent(memoryview(frame)[at:end])
        self.awaits = True

    def _requested_mechanism(self, api: ApiVersion, mechanism: str) -> None:
        rules = self._rules
        if rules.mechanisms is not None and mechanism not in rules.mechanisms:
            raise ProtocolError("a SASL mechanism that this listener does not allow", reason="mechanism_refused")
        if api.version == 0 and mechanism not in READABLE and mechanism != GSSAPI:
            raise ProtocolError("bare tokens of a mechanism whose end is not known", reason="mechanism_refused")
        if mechanism == PLAIN and self._tls is None and rules.on_plain_exposed is not None and not is_loopback(self._peer[0]):
            rules.on_plain_exposed(rules.listener, self._peer)
        self._mechanism = mechanism
        self._observer = observer_of(mechanism, rules.claim)

    def bare_ends(self, beginning: Buffer) -> bool:
        """Whether the client's next bytes are a request and no unframed token, by up to two bytes of them."""
        return self._mechanism == GSSAPI and not is_gssapi_token(beginning)

    def end_bare(self) -> None:
        """The next bytes are a request: the exchange ended with the token before it."""
        self.news = True
        self._end(Progress.UNDETERMINED, 0, 0)

    def sent_bare(self, token: Buffer) -> None:
        """Handle an unframed token that is forwarded."""
        assert self._observer is not None
        self._observer.sent(token)
        self._bare_pending += 1
        if self._bare_pending > BARE_PENDING_MAX:
            raise ProtocolError(f"more than {BARE_PENDING_MAX} bare tokens without a response")
        self.awaits = self._mechanism != GSSAPI  # its last token is not answered

    # --- messages of the broker

    def is_free(self, api: ApiVersion, frame: Buffer) -> bool:
        """Whether the message of a login that `frame` answers is not charged; called before `answered`.

        A broker's network threads process a login. What it refuses, and requests outside a login, its handler threads have processed.

        Raises:
            ProtocolError: the response is invalid.
        """
        if api.key == ApiKey.SASL_HANDSHAKE:
            return read_handshake_error(frame) == 0
        if self._observer is None or self.free_left <= 0:
            return False
        return read_authenticate_answer(api, frame).error_code == 0

    def answered(self, api: ApiVersion, frame: Buffer, sent_ms: int) -> None:
        """Handle the broker's whole response to a message forwarded at `sent_ms`.

        Raises:
            ProtocolError: the response is invalid, or the client has to be disconnected.
        """
        self.awaits = False
        self.news = True
        if api.key == ApiKey.SASL_HANDSHAKE:
            accepted = read_handshake_error(frame) == 0
            self.under_way = accepted
            self.bare = accepted and api.version == 0
            self.free_left = MESSAGES_FREE_MAX - 1
            if not accepted:
                self._observer = None
            return
        self.free_left -= 1
        answer = read_authenticate_answer(api, frame)
        if self._observer is None:
            return  # an unexpected token, which the broker answers with an error
        if answer.error_code:
            self._failed()
            return
        progress = self._observer.answered(memoryview(frame)[slice(*answer.token)])
        if progress is Progress.SUCCEEDED and self._mechanism == OAUTHBEARER and answer.session_lifetime_ms == 0:
            self._failed()  # the token has expired: the broker accepts no request
            return
        if progress is not Progress.GOES_ON:
            self._end(progress, answer.session_lifetime_ms or 0, sent_ms)

    def answered_bare(self, token: Buffer) -> None:
        """Handle an unframed token of the broker.

        Raises:
            ProtocolError: no token of the client waits for a response, or the client has to be disconnected.
        """
        if not self._bare_pending:
            raise ProtocolError("a bare token that was not requested", reason="response_unsolicited")
        self._bare_pending -= 1
        self.awaits = False
        self.news = True
        assert self._observer is not None
        if self._observer.answered(token) is Progress.SUCCEEDED:
            self._end(Progress.SUCCEEDED, 0, 0)

    # --- the end

    def _failed(self) -> None:
        """The broker refused, and closes soon or keeps the session as it was; the principal stays."""
        self.under_way = False
        self._note_failure()
        self._observer = None

    def _note_failure(self) -> None:
        claimed = None if self._observer is None else self._observer.name
        self.refusal = f"the broker refused {self._label}{f' of user {claimed}' if claimed else ', whose user is not known'}"
        self._count("failure")
        if self._rules.on_login_failed is not None:
            self._rules.on_login_failed(self._peer)

    def broker_left(self) -> None:
        """The broker closed the connection, which is its only way to refuse unframed tokens."""
        if self.bare and self.under_way and self._who is None:
            self.under_way = self.bare = False
            self._note_failure()

    def _end(self, progress: Progress, lifetime_ms: int, sent_ms: int) -> None:
        observer, mechanism, rules = self._observer, self._mechanism, self._rules
        assert observer is not None
        name = observer.name if progress is Progress.SUCCEEDED else None
        is_token = observer.is_delegation_token
        is_first = self.under_way  # of an exchange that may continue, although it looked complete
        self.under_way = self.bare = False
        if progress is Progress.SUCCEEDED:
            self._observer = None
        if self._who is None:
            self._who = (mechanism, name)
        elif self._who != (mechanism, name):
            raise ProtocolError("the client logged in again as another user", reason="principal_changed")
        principal = rules.after_login(self._peer, mechanism, name, is_delegation_token=is_token, tls=self._tls)
        if principal is None:
            raise ProtocolError(f"the user that logged in by {self._label} is not known", reason="principal_unknown")
        self.required, self.refusal = False, None
        if is_first:
            self._count("success" if name is not None and not is_token else "unknown")
        self._identified(principal, sent_ms, sent_ms + lifetime_ms if lifetime_ms > 0 else 0)

    @property
    def _label(self) -> str:
        return self._mechanism if self._mechanism in KNOWN else OTHER_MECHANISM

    def _count(self, outcome: str) -> None:
        logins = self._counters.logins
        logins[self._label, outcome] = logins.get((self._label, outcome), 0) + 1


def _ignore(_principal: KafkaPrincipal, _began_ms: int, _ends_ms: int) -> None:
    """Do nothing: the connection has ended."""
