"""The client's tokens of a login: each is forwarded when the broker has answered the one before it."""

from __future__ import annotations

from typing import NamedTuple

from protocol.api_keys import ApiKey
from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from proxy.enforcement.mode import IN_FLIGHT_MAX
from proxy.session.in_flight import InFlight
from proxy.session.login.login import Login
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.pending_requests import HEAD, INT32, PendingRequests, Stop
from proxy.session.throttle.throttle_state import ThrottleState


class TokenScan(NamedTuple):
    """What a scan of tokens without frames found.

    Attributes:
        onward: the bytes to forward.
        tokens: number of tokens in them.
        behind: the bytes behind the last token of the login, which have frames; None: the login is not over.
    """

    onward: bytes
    tokens: int
    behind: bytes | None


class LoginTokens:
    """Those of one connection: in SaslAuthenticate requests or, after a SaslHandshake v0, without frames."""

    __slots__ = ("_classifier", "_in_flight", "_login", "_pending", "_throttle")

    def __init__(
        self, in_flight: InFlight, throttle: ThrottleState, pending: PendingRequests, classifier: RequestClassifier, login: Login
    ) -> None:
        self._in_flight = in_flight
        self._throttle = throttle
        self._pending = pending
        self._classifier = classifier
        self._login = login

    def enter(self, frame: memoryview, now_ms: int, now_ns: int) -> bool:
        """Pass a token, which came as one whole frame, to the login, and a request to the FIFO. False: it is something else.

        Raises:
            ProtocolError: it is invalid.
        """
        tail, login = self._pending.tail, self._login
        if login.bare:
            if (tail is not None and tail.have_bytes > 0) or login.bare_ends(frame[LENGTH_BYTES : LENGTH_BYTES + 2]):
                return False
            login.sent_bare(frame[LENGTH_BYTES:])
        elif tail is not None or not self._enter_request(frame, now_ms, now_ns):
            return False
        if login.awaits:
            self._await_response(b"", now_ms)
        return True

    def _enter_request(self, frame: memoryview, now_ms: int, now_ns: int) -> bool:
        """Enter a SaslAuthenticate request; False: it is another one, or the FIFO is full."""
        if len(frame) < HEAD_BYTES or len(self._in_flight) >= IN_FLIGHT_MAX:
            return False
        size, index, correlation_id = HEAD.unpack_from(frame)
        if index >> 16 != ApiKey.SASL_AUTHENTICATE:
            return False
        head = self._classifier.resolve(frame, 0, size)
        if head is None:
            raise ProtocolError("request head is longer than its frame", reason="bad_header")
        self._login.requested(head.api, frame, head.head_bytes)
        self._throttle.logs_in(now_ms)
        self._in_flight.append((correlation_id, head, size, now_ms, now_ns))
        head.client.usage.requests[head.key] += 1
        return True

    def scan(self, tail: bytearray, now_ms: int) -> TokenScan:
        """Follow tokens without frames, up to the first one that waits for a response; `tail` loses those that are forwarded.

        Raises:
            ProtocolError: a token is too large or invalid.
        """
        login, onward, count = self._login, bytearray(), 0
        while len(tail) >= LENGTH_BYTES:
            (size,) = INT32.unpack_from(tail)
            if not 0 <= size <= login.frame_bytes_max:
                raise FrameSizeError(f"token of {size} bytes, limit {login.frame_bytes_max}")
            end = LENGTH_BYTES + size
            if len(tail) < min(end, LENGTH_BYTES + 2):
                break
            if login.bare_ends(tail[LENGTH_BYTES : min(end, LENGTH_BYTES + 2)]):
                login.end_bare()
                self._pending.tail = None
                return TokenScan(bytes(onward), count, bytes(tail))
            if len(tail) < end:
                break
            login.sent_bare(tail[LENGTH_BYTES:end])
            onward += tail[:end]
            del tail[:end]
            count += 1
            if login.awaits:
                self._await_response(tail, now_ms)
                return TokenScan(bytes(onward), count, None)
        self._pending.keep_tail(tail, LENGTH_BYTES)
        return TokenScan(bytes(onward), count, None)

    def _await_response(self, behind: bytes | bytearray, now_ms: int) -> None:
        """Keep the bytes behind a token until the broker has answered it."""
        self._pending.tail = None
        self._pending.keep(behind, 0, now_ms, Stop.LOGIN)
