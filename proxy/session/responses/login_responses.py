"""The broker's responses to messages of a login, and its tokens without frames."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import LENGTH_BYTES, MAX_LOGIN_FRAME_BYTES
from proxy.session.login.login import Login
from proxy.session.request_context import RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.responses.answer_bytes import SIZE
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.throttle_state import ThrottleState


class LoginResponses:
    """Those of one connection. They go to the client unchanged, and tell the login how the broker decided."""

    __slots__ = ("_classifier", "_login", "_settle_flag", "_throttle")

    def __init__(self, settle_flag: SettleFlag, throttle: ThrottleState, classifier: RequestClassifier, login: Login) -> None:
        self._settle_flag = settle_flag
        self._throttle = throttle
        self._classifier = classifier
        self._login = login

    @property
    def are_tokens(self) -> bool:
        """Whether the broker sends tokens without frames now, as after a SaslHandshake v0."""
        return self._login.bare

    def record(self, head: RequestContext, frame: bytes | memoryview, sent_ms: int, *, is_judged: bool) -> None:
        """Pass a complete response to the login.

        Args:
            head: the context of its request.
            frame: its bytes.
            sent_ms: when the request was read.
            is_judged: whether its handler time has a verdict, which is applied after this.

        Raises:
            ProtocolError: it does not match its version, or the client may not log in.
        """
        if self._throttle.active and not is_judged:
            self._throttle.pass_answer()
        self._login.answered(head.api, frame, sent_ms)
        self._login_went_on()
        if head.key == ApiKey.SASL_HANDSHAKE and self._login.under_way:
            self._classifier.broker_times.logs_in = True
            self._throttle.hold_renewal()

    def _login_went_on(self) -> None:
        self._throttle.logging_in = self._login.under_way and self._login.free_left > 0
        self._settle_flag.needs_settle = True

    def scan_tokens(self, tail: bytearray) -> bytes | None:
        """Follow tokens without frames, and remove the complete ones from `tail`; return them, to be sent to the client.

        Raises:
            ProtocolError: a token is too large, or bytes follow the last one.
        """
        leaving = bytearray()
        while self._login.bare and len(tail) >= LENGTH_BYTES:
            (size,) = SIZE.unpack_from(tail)
            if not 0 <= size <= MAX_LOGIN_FRAME_BYTES:
                raise FrameSizeError(f"token of {size} bytes, limit {MAX_LOGIN_FRAME_BYTES}")
            end = LENGTH_BYTES + size
            if len(tail) < end:
                break
            self._login.answered_bare(tail[LENGTH_BYTES:end])
            self._login_went_on()
            leaving += tail[:end]
            del tail[:end]
        if tail and not self._login.bare:
            raise ProtocolError("a response although no request is in flight", reason="response_unsolicited")
        return bytes(leaving) or None
