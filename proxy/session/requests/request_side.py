"""The client's bytes: follows the frames, enters each request in the FIFO, and decides how many bytes are forwarded.

The data path: the first twelve bytes of a frame are unpacked, the bytes after them are compared with the last head of this API
version, and the frame is forwarded; a request that equals its predecessor costs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from proxy.enforcement.mode import IN_FLIGHT_MAX, INT32_MAX, Mode
from proxy.enforcement.paced.time_group import limited_time_group
from proxy.session.equal_frames import EQUAL_FRAMES_MIN, equal_requests
from proxy.session.in_flight import EnteredRun, InFlight, OwnReplies
from proxy.session.login.login import Login
from proxy.session.request_context import (
    ANSWER,
    FETCH,
    MUTATION,
    NO_ACK,
    OPENING_REQUESTS_MAX,
    PACED,
    PACED_FETCH,
    PACED_NO_ACK,
    PRODUCE,
    RequestContext,
)
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.fetch_requests import FetchRequests
from proxy.session.requests.known_heads import KnownHeads
from proxy.session.requests.paced_requests import PacedRequests
from proxy.session.requests.pending_requests import HEAD, PendingRequests, Stop, frozen
from proxy.session.requests.recorded_requests import RecordedRequests
from proxy.session.requests.requests_ahead import RequestsAhead
from proxy.session.requests.throttle_checks import ThrottleChecks
from proxy.session.requests.timed_requests import TimedRequests
from proxy.session.requests.whole.found_request import FoundRequest
from proxy.session.requests.whole.login_tokens import LoginTokens
from proxy.session.requests.whole.whole_requests import WholeRequests
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.paced_admission import PacedAdmission
from proxy.session.throttle.throttle_state import ThrottleState
from proxy.session.throttle.time_admission import TimeAdmission

FRAMES_PER_TURN = 64
_OBSERVE = Mode.OBSERVE  # an Enum member is looked up by a call


class RequestSide:
    """The requests of one connection.

    Attributes:
        pending: bytes that are kept, and why.
        ungated: Sluice drains: complete frames are forwarded whatever they cost, except fetches.
        draining: no new request is forwarded; one that has begun may be completed.
        frames: number of forwarded requests.
        ahead: requests that are forwarded before others are recorded; None: there were none.
        last_run: the requests that were entered together last; None: there were none.
    """

    __slots__ = (
        "_body_left",
        "_classifier",
        "_fetch_admission",
        "_fetches",
        "_heads",
        "_in_flight",
        "_in_flight_max",
        "_last_unanswered",
        "_limits",
        "_login",
        "_paced",
        "_recorded",
        "_settle_flag",
        "_throttle",
        "_throttle_checks",
        "_timed",
        "_tokens",
        "_turn_began",
        "_turn_ends",
        "_whole",
        "ahead",
        "draining",
        "frame_bytes_max",
        "frames",
        "last_run",
        "pending",
        "ungated",
    )

    def __init__(
        self,
        in_flight: InFlight,
        settle_flag: SettleFlag,
        throttle: ThrottleState,
        fetch_admission: FetchAdmission,
        classifier: RequestClassifier,
        own_replies: OwnReplies,
        reply: Callable[[int, RequestContext], bytes],
        frame_bytes_max: int,
        login: Login,
    ) -> None:
        self._in_flight = in_flight
        self._settle_flag = settle_flag
        self._throttle = throttle
        self._fetch_admission = fetch_admission
        self._classifier = classifier
        self._login = login
        self.frame_bytes_max = frame_bytes_max
        self.pending = PendingRequests(in_flight, settle_flag, throttle)
        self._whole = WholeRequests(in_flight, settle_flag, throttle, self.pending, classifier, own_replies, reply, login)
        self._fetches = FetchRequests(in_flight, throttle, fetch_admission, self.pending, classifier)
        self._paced: PacedRequests | None = None  # once a group of a request may have a schedule
        self._timed: TimedRequests | None = None  # once the group of request time of a request has a schedule
        self._recorded = RecordedRequests(in_flight, throttle, classifier)
        self._throttle_checks = ThrottleChecks(throttle)
        self._heads = KnownHeads(self.pending, classifier)
        self._tokens = LoginTokens(in_flight, throttle, self.pending, classifier, login)
        self._body_left = 0
        self._last_unanswered = 0  # the number of the last frame that takes no place in the FIFO
        self._limits = False  # of this scan: whether throttles limit it ...
        self._in_flight_max = IN_FLIGHT_MAX  # ... the limit of requests in flight ...
        self._turn_began = self._turn_ends = 0  # ... and the numbers of its first and last frame
        self.ahead: RequestsAhead | None = None
        self.last_run: EnteredRun | None = None
        self.frames = 0
        self.ungated = False
        self.draining = False

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun that is incomplete."""
        tail = self.pending.tail
        return self._body_left > 0 or (tail is not None and tail.have_bytes > 0)

    @property
    def passing_bytes(self) -> int:
        """Number of bytes still to arrive of a request whose head was forwarded: they pass unchanged."""
        return self._body_left

    @property
    def followed_bytes(self) -> int:
        """Number of bytes of the same request behind these: a request passes whole."""
        return 0

    def pass_body(self, size: int, _now_ms: int, now_ns: int) -> None:
        """Count bytes of the client, at most `passing_bytes`, that go to the broker unchanged."""
        if size == self._body_left:
            self._complete(now_ns)
        self._body_left -= size

    @property
    def unfinished(self) -> int:
        """1 when the last request in the FIFO is incomplete, so that it cannot be answered."""
        return int(self._body_left > 0 and self._last_unanswered != self.frames)

    @property
    def token_bytes_max(self) -> int:
        """The largest request of a login, or unframed token, that is accepted now."""
        return self._login.frame_bytes_max

    def forget_heads(self) -> None:
        """Resolve every client again, because principal, scope or settings changed."""
        self._heads.forget()

    def scan(self, data: bytes, now_ms: int, now_ns: int) -> bytes | None:
        """Scan bytes of the client; return the bytes to forward now.

        The code here handles the usual case: one whole request, like the one before it, with nothing in flight. For any other nothing is
        done before `_follow`.

        Args:
            data: the bytes.
            now_ms: monotonic milliseconds.
            now_ns: the same time in nanoseconds, for measurements.

        Raises:
            ProtocolError: the bytes are invalid, or a refused request.
        """
        head, pending, frame_bytes = self._heads.last, self.pending, len(data)
        if (
            self._in_flight
            or head is None
            or self._body_left
            or pending.tail is not None
            or pending.data is not None
            or frame_bytes < HEAD_BYTES
        ):
            return self._follow(data, now_ms, now_ns)
        size, index, correlation_id = HEAD.unpack_from(data)
        if (
            size + LENGTH_BYTES != frame_bytes
            or head.index != index
            or not data.startswith(head.prefix, HEAD_BYTES)
            or size > self.frame_bytes_max  # it is at least as large as its head
            or self._throttle.limits
            or self.draining
        ):
            if size + LENGTH_BYTES < frame_bytes and self._pass_equal(head, data, size, index, now_ms, now_ns):
                return data
            return self._follow(data, now_ms, now_ns)
        client, kind = head.client, head.kind
        if kind >= FETCH:
            paced = self._paced
            if paced is not None and kind >= PACED:
                answered = paced.passes(head, size, now_ms) if kind != PACED_FETCH else paced.reserves(head, now_ms)
                if answered is None:
                    return self._follow(data, now_ms, now_ns)
                self._in_flight.append((correlation_id, answered, size, now_ms, now_ns))
                client.usage.requests[head.key] += 1
                self.frames += 1
                return data
            if kind != FETCH:
                return self._follow(data, now_ms, now_ns)
            group = client.fetch(now_ms)
            if (
                group is None
                or client.enforcement.mode is _OBSERVE
                or group.bound != head.cap_bound
                or head.is_lowered
                or not self._fetch_admission.passes(group, head.cap_bytes, now_ms)
            ):
                return self._follow(data, now_ms, now_ns)
        self._in_flight.append((correlation_id, head, size, now_ms, now_ns))
        client.usage.requests[head.key] += 1
        self.frames += 1
        return data

    def _follow(self, data: bytes, now_ms: int, now_ns: int) -> bytes | None:
        """Do what `scan` does, in all cases."""
        pending = self.pending
        if pending.data is not None:  # bytes that were read after a stop
            pending.keep_more(data)
            return None
        if pending.tail is not None:
            if self._login.bare:
                return self._scan_tokens(bytearray(pending.tail.joined() + data), now_ms, now_ns)
            joined = pending.join_tail(data)
            if joined is None:
                return None
            return self._scan_heads(joined, 0, 0, now_ms, now_ns, now_ms)
        body_left = self._body_left
        if body_left > len(data):
            self._body_left = body_left - len(data)
            return data
        if body_left:
            self._complete(now_ns)
            if body_left == len(data):
                self._body_left = 0
                return data
        return self._scan_heads(data, 0, body_left, now_ms, now_ns, now_ms)

    def _pass_equal(self, head: RequestContext, data: bytes, size: int, index: int, now_ms: int, now_ns: int) -> bool:
        """Enter requests that equal the last one and are all of `data`, with nothing in flight, while no quota is near.

        Args:
            head: the context of the last request.
            data: the bytes.
            size: the size of the first request, without its length field, in bytes.
            index: its API key and version.
            now_ms: monotonic milliseconds.
            now_ns: the same time in nanoseconds, for measurements.

        Returns:
            Whether they were entered, as `_scan_heads` does it; False: nothing was done.
        """
        if index != head.index or not head.size_min <= size <= self.frame_bytes_max or head.kind >= FETCH:
            return False
        count, rest = divmod(len(data), size + LENGTH_BYTES)
        if rest or not EQUAL_FRAMES_MIN <= count <= FRAMES_PER_TURN or self._throttle.limits or self.draining:
            return False
        equal = equal_requests(data, 0, size, index, head.prefix, count)
        if equal is None or not self._requests_ahead().passes_all(head, size, count, now_ms):
            return False
        in_flight = self._in_flight
        in_flight.extend(zip(equal, repeat(head), repeat(size), repeat(now_ms), repeat(now_ns)))
        self.last_run = (equal, size, in_flight[0], in_flight[-1])
        self._count(head, count)
        return True

    def _requests_ahead(self) -> RequestsAhead:
        if self.ahead is None:
            self.ahead = RequestsAhead(self._in_flight, self._settle_flag, self._throttle, self._classifier)
        return self.ahead

    def _complete(self, now_ns: int) -> None:
        """The rest of a request is forwarded now, so the broker can begin to process it."""
        in_flight = self._in_flight
        if in_flight and self._last_unanswered != self.frames:
            correlation_id, head, size, read_ms, _ = in_flight[-1]
            in_flight[-1] = (correlation_id, head, size, read_ms, now_ns)

    def resume(self, now_ms: int, now_ns: int) -> bytes | None:
        """Continue with kept bytes; return the bytes to forward now."""
        pending = self.pending
        if (pending.stop is Stop.LOGIN and self._login.awaits) or pending.waits_for_us:
            return None
        if pending.stop is Stop.LOGIN:
            self.forget_heads()  # the same request may have to wait now, or count for another group
        pending.stop = Stop.NONE
        pending.waits_behind_fetch = False
        data, at = pending.data, pending.at
        if data is None:
            return None
        pending.data = None
        if self._login.bare:
            return self._scan_tokens(bytearray(data[at:]), now_ms, now_ns)
        return self._scan_heads(data, at, at, now_ms, now_ns, pending.read_ms)

    def _scan_heads(self, data: bytes | bytearray, start: int, at: int, now_ms: int, now_ns: int, read_ms: int) -> bytes | None:
        """Follow the frames from `at` on, which were read at `read_ms`; everything from `start` to the end of the scan is forwarded."""
        head = self._heads.last
        if head is not None and head.kind >= MUTATION:
            head = self._resolved(head, now_ms)
        self._begin_turn(now_ms)
        timed = self._timed
        while at < len(data):
            if len(data) - at < HEAD_BYTES:
                self.pending.keep_head(data, start, at, self.frame_bytes_max)
                break
            size, index, _ = HEAD.unpack_from(data, at)
            if (
                head is None
                or head.index != index
                or not data.startswith(head.prefix, at + HEAD_BYTES)
                or not head.size_min <= size <= self.frame_bytes_max
            ):
                head = self._next_head(data, start, at, size, index, now_ms)
                if head is None:
                    break
                timed = self._timed
            most = self._most(head, data, at, size, now_ms, read_ms)
            if not most:
                break
            if timed is not None and head.kind < PACED:
                if not self._admits_timed(timed, head, data, at, size, now_ms, read_ms):
                    break
                most = 1 if timed.has_admitted else most
            if head.kind < FETCH:
                behind = self._pass_run(head, data, at, most, now_ms, now_ns, read_ms)
            elif head.kind == FETCH:
                data, behind = self._pass_fetches(head, data, at, most, now_ms, now_ns, read_ms)
            elif head.kind == NO_ACK:
                behind = self._pass_unanswered(head, at, size, now_ms)
            elif head.kind >= PACED:
                data, behind = self._pass_paced(head, data, at, size, now_ms, now_ns, read_ms)
            else:
                request = FoundRequest(head, data, start, at, size, now_ms, now_ns, read_ms, not self.ungated)
                in_flight = len(self._in_flight)
                data, at, noted, goes_on = self._whole.take(request)
                self.frames += noted
                if timed is not None:
                    self._note_timed(timed, now_ms, passes=len(self._in_flight) > in_flight)
                if not goes_on:
                    break
                continue
            if timed is not None and head.kind < PACED:
                self._note_timed(timed, now_ms, passes=behind != at)
            if behind == at:
                break
            at = behind
        else:
            self._body_left = at - len(data)
            at = len(data)
        if self.ahead is not None and self.ahead.is_bounded:
            self.ahead.note(now_ms)
        if start == 0 and at == len(data):
            return frozen(data)
        return bytes(data[start:at]) if at > start else None

    def _admits_timed(
        self, timed: TimedRequests, head: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, read_ms: int
    ) -> bool:
        """Whether a schedule of handler time lets the request at `at` pass now, or there is none; if not, it is kept."""
        return timed.admits(head, data, at, size, now_ms, read_ms, opens=self.frames < OPENING_REQUESTS_MAX, ungated=self.ungated)

    @staticmethod
    def _note_timed(timed: TimedRequests, now_ms: int, *, passes: bool) -> None:
        """Reserve the handler time of the request that has passed, or leave its line because it waits for something else."""
        if not timed.has_admitted:
            return
        if passes:
            timed.passed(now_ms)
        else:
            timed.leave()

    def _begin_turn(self, now_ms: int) -> None:
        """Find the limits of a scan."""
        self._body_left = self._whole.parsed_bytes = 0
        self._limits = self._throttle.limits
        self._in_flight_max = self._throttle.in_flight_max(now_ms) if self._limits else IN_FLIGHT_MAX
        if self.draining:
            self._in_flight_max = 0
        self._turn_began = self.frames
        self._turn_ends = self.frames + FRAMES_PER_TURN

    def _most(self, head: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, read_ms: int) -> int:
        """Return how many requests like the one at `at` may be forwarded before this is called again; 0: it waits, and is kept."""
        count, most = len(self._in_flight), 1
        if count:
            most = INT32_MAX if self.ungated else self._requests_ahead().number(head, size, now_ms)
            if not most:
                self.pending.keep_over(data, at, count, now_ms, read_ms)
                return 0
        if not self.ungated or self.draining:
            most = min(most, self._in_flight_max - count, self._turn_ends - self.frames)
            if most <= 0:
                self.pending.keep_over(data, at, self._in_flight_max, now_ms, read_ms)
                return 0
        if self._limits:
            if not self._throttle_checks.passes(head, size, now_ms, ungated=self.ungated):
                self.pending.keep_over(data, at, 0, now_ms, read_ms)
                return 0
            return 1
        return most

    def _pass_run(self, head: RequestContext, data: bytes | bytearray, at: int, most: int, now_ms: int, now_ns: int, read_ms: int) -> int:
        """Forward the request at `at`, and equal ones behind it, that are not fetches.

        Returns:
            The end of the forwarded requests; `at`: the first one waits for the quota of produced bytes, and is kept.
        """
        in_flight, ahead, known, room = self._in_flight, None, head, INT32_MAX
        if head.kind == PRODUCE:
            if in_flight and self.ahead is not None:
                ahead, room = self.ahead, INT32_MAX if self.ungated else self.ahead.room_bytes(head, now_ms)
                if room < 0:
                    self.pending.keep_over(data, at, len(in_flight), now_ms, read_ms)
                    return at
            if self._limits and self._throttle.departed:
                known = self._recorded.record_departed(head, HEAD.unpack_from(data, at)[0], now_ms)
        begun, (size, _, _) = at, HEAD.unpack_from(data, at)
        count = min(most, (len(data) - at) // (size + LENGTH_BYTES), room // size + 1)
        equal = equal_requests(data, at, size, head.index, head.prefix, count) if count >= EQUAL_FRAMES_MIN else None
        if equal is not None:
            in_flight.extend(zip(equal, repeat(known), repeat(size), repeat(read_ms), repeat(now_ns)))
            at, noted = at + count * (size + LENGTH_BYTES), count
        else:
            at, noted = self._pass_one_by_one(head, known, data, at, most, room, now_ns, read_ms)
        self._count(head, noted)
        if ahead is not None:
            ahead.bytes += at - begun - noted * LENGTH_BYTES
        return at

    def _pass_one_by_one(
        self, head: RequestContext, known: RequestContext, data: bytes | bytearray, at: int, most: int, room: int, now_ns: int, read_ms: int
    ) -> tuple[int, int]:
        """Enter the request at `at`, and those behind it with the same head, as `known`; return their end, and how many they are."""
        in_flight, count, end = self._in_flight, most, len(data) - HEAD_BYTES
        index, prefix, size_min, size_max = head.index, head.prefix, head.size_min, self.frame_bytes_max
        size, _, correlation_id = HEAD.unpack_from(data, at)
        while True:
            in_flight.append((correlation_id, known, size, read_ms, now_ns))
            count -= 1
            room -= size
            at += size + LENGTH_BYTES
            if not count or at > end or room < 0:
                return at, most - count
            size, other, correlation_id = HEAD.unpack_from(data, at)
            if other != index or not data.startswith(prefix, at + HEAD_BYTES) or not size_min <= size <= size_max:
                return at, most - count

    def _count(self, head: RequestContext, noted: int) -> None:
        self.frames += noted
        head.client.usage.requests[head.key] += noted

    def _pass_fetches(
        self, head: RequestContext, data: bytes | bytearray, at: int, most: int, now_ms: int, now_ns: int, read_ms: int
    ) -> tuple[bytes | bytearray, int]:
        """Forward the fetch at `at`, and equal ones behind it: see `FetchRequests.pass_run`."""
        before = len(self._in_flight)
        passed = self._fetches.pass_run(head, data, at, most, self.frame_bytes_max, now_ms, now_ns, read_ms)
        self._count(head, len(self._in_flight) - before)
        return passed

    def _pass_unanswered(self, head: RequestContext, at: int, size: int, now_ms: int) -> int:
        """Record a Produce without a response; return its end."""
        if self._recorded.record_unanswered(head, size, now_ms):
            self._in_flight_max = 0
        self.frames += 1
        self._last_unanswered = self.frames
        return at + size + LENGTH_BYTES

    def _resolved(self, head: RequestContext, now_ms: int) -> RequestContext:
        """Return the context by which a request of a kind from MUTATION on is handled, since its group may have a schedule or a window."""
        if head.kind < PACED and not self._classifier.paces:
            return head
        if self._timed is None and limited_time_group(head.client.request(now_ms)) is not None:
            by_time = TimeAdmission(self._fetch_admission)
            self._timed = TimedRequests(self._in_flight, self._throttle, by_time, self.pending, self._classifier)
            if self._paced is not None:
                self._paced.timed = self._timed
        if head.kind < PACED:
            return head
        if self._paced is None:
            admission = PacedAdmission(self._fetch_admission)
            self._paced = PacedRequests(self._in_flight, self._throttle, admission, self.pending, self._classifier)
            self._paced.timed = self._timed
        return self._paced.resolve(head, now_ms)

    def _pass_paced(
        self, head: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, now_ns: int, read_ms: int
    ) -> tuple[bytes | bytearray, int]:
        """Forward the request at `at` when its group's schedule admits it; return the bytes to forward, and its end or `at`."""
        assert self._paced is not None
        passed = self._paced.take(head, data, at, size, now_ms, now_ns, read_ms, ungated=self.ungated)
        if passed is None:
            return data, at
        if self._timed is not None:
            self._note_timed(self._timed, now_ms, passes=True)
        self._count(head, 1)
        if head.kind == PACED_NO_ACK:
            self._last_unanswered = self.frames
        return passed, at + size + LENGTH_BYTES

    def _next_head(self, data: bytes | bytearray, start: int, at: int, size: int, index: int, now_ms: int) -> RequestContext | None:
        """Find a head that differs from the last one, and the throttles of its groups; None: as in `KnownHeads.find`."""
        head = self._heads.find(data, start, at, size, index, self.frame_bytes_max)
        if head is None:
            return None
        if self.frames > self._turn_began:  # the first one of a scan does not count
            self._turn_ends -= self._heads.frames_more
        if head.kind >= MUTATION:
            head = self._resolved(head, now_ms)
        if head.may_inherit and self._throttle_checks.inherits(head, now_ms, ungated=self.ungated):
            self._limits, self._in_flight_max = True, self._throttle.in_flight_max(now_ms)
        return head

    def pass_token(self, frame: memoryview, now_ms: int, now_ns: int) -> bool:
        """Enter a token in the FIFO, which came as one whole frame and is forwarded from its buffer. False: it is something else.

        Raises:
            ProtocolError: it is invalid.
        """
        pending = self.pending
        if pending.stop or self._body_left or pending.data is not None or self.draining:
            return False
        if self._timed is not None and not self._throttle.logging_in:  # it may have to wait
            return False
        if not self._tokens.enter(frame, now_ms, now_ns):
            return False
        self.forget_heads()
        self.frames += 1
        return True

    def _scan_tokens(self, tail: bytearray, now_ms: int, now_ns: int) -> bytes | None:
        """Follow tokens without frames, and the requests behind them."""
        onward, count, behind = self._tokens.scan(tail, now_ms)
        self.frames += count
        if behind is not None:
            onward += self._scan_heads(behind, 0, 0, now_ms, now_ns, now_ms) or b""
        return onward or None


assert FETCH < NO_ACK < ANSWER < MUTATION < PACED
