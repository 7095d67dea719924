"""The broker's bytes: matches each response with its request, has it recorded, and sends, changes or holds it.

The size of a response is in its first four bytes, so the decision is made before the body arrives. Only four bytes of throttle
time, hosts and ports are changed; all other bytes are the broker's own.
"""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import LENGTH_BYTES, MAX_REWRITTEN_RESPONSE_BYTES, RESPONSE_HEAD_BYTES
from protocol.steps import Pace, Steps, finished
from proxy.session.in_flight import InFlight, OwnReplies
from proxy.session.parsed_response import AT_ONCE_BYTES, LongAnswer, ParsedResponse, as_it_came, in_pieces
from proxy.session.request_context import BROKERS, FETCH, LOGIN, PASS, PRODUCE, WALK, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.request_side import RequestSide
from proxy.session.responses.answer_bytes import (
    HEAD,
    SIZE,
    STAMP_BYTES,
    announced,
    bytes_to_stamp,
    is_clean,
    is_parsed_whole,
    is_plain,
    joined,
    may_change,
    stamped,
    throttle_place,
)
from proxy.session.responses.answer_verdicts import AnswerVerdicts
from proxy.session.responses.held_responses import HeldResponses
from proxy.session.responses.login_responses import LoginResponses
from proxy.session.responses.own_responses import OwnResponses
from proxy.session.responses.request_time_verdicts import NOT_CHARGED, RequestTimeVerdicts
from proxy.session.responses.response_runs import RESPONSES_MIN, ResponseRuns
from proxy.session.rewrite import Rewriter, Walker
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.throttle_state import ThrottleState
from proxy.telemetry.latency import SHIFT

SMALL_BYTES = 512  # shorter responses are parsed at once: there are at most as many as requests in flight


class ResponseSide:
    """The responses of one connection.

    Attributes:
        verdicts: applies responses to quotas; `request_time` is its part for handler time.
        held: the responses that are held.
        own: the responses of Sluice's own.
        broken: the error of an invalid response; nothing behind it is sent, and `Connection.settle` ends the connection.
        work: parses a long response in steps of `go_on`; bytes read meanwhile are kept behind it.
    """

    __slots__ = (
        "_body_left",
        "_fetch_admission",
        "_in_flight",
        "_login_responses",
        "_meter",
        "_number",
        "_parsed",
        "_parsed_bytes",
        "_requests",
        "_rewriter",
        "_runs",
        "_settle_flag",
        "_tail",
        "_tail_need",
        "_throttle",
        "_walker",
        "broken",
        "held",
        "own",
        "request_time",
        "verdicts",
        "work",
        "work_bytes",
    )

    def __init__(
        self,
        in_flight: InFlight,
        requests: RequestSide,
        settle_flag: SettleFlag,
        throttle: ThrottleState,
        fetch_admission: FetchAdmission,
        rewriter: Rewriter,
        classifier: RequestClassifier,
        own_replies: OwnReplies,
        login_responses: LoginResponses,
        verdicts: AnswerVerdicts,
    ) -> None:
        self._in_flight = in_flight
        self._requests = requests
        self._settle_flag = settle_flag
        self._throttle = throttle
        self._login_responses = login_responses
        self._fetch_admission = fetch_admission
        self._number = classifier.number
        self._meter = classifier.meter
        self.verdicts = verdicts
        self.request_time: RequestTimeVerdicts = verdicts.request_time
        self.held = HeldResponses()
        self.own = OwnResponses(in_flight, own_replies, throttle, self.request_time, self.held)
        self._rewriter = rewriter
        self._runs: ResponseRuns | None = None  # made for clients that pipeline
        self._body_left = 0
        self._tail: bytearray | None = None
        self._tail_need = 0
        self._walker: Walker | None = None
        self.broken: ProtocolError | None = None
        self._parsed: ParsedResponse | None = None  # the parsed content of the next, long response
        self._parsed_bytes = 0  # of long responses parsed in this call
        self.work: LongAnswer | None = None
        self.work_bytes = 0  # of that response

    @property
    def answers(self) -> int:
        """Number of responses that have begun."""
        return self.request_time.answers

    @property
    def held_bytes(self) -> int:
        """Bytes of responses that are kept; the rest of them stays in the broker's socket."""
        return self.held.size_bytes + self.work_bytes + (0 if self._tail is None else len(self._tail))

    @property
    def reserved_bytes(self) -> int:
        """Bytes of memory used."""
        return self.held_bytes + (0 if self._walker is None else self._walker.kept_bytes)

    def drop(self) -> None:
        """Drop all kept bytes."""
        self._tail = self._walker = None
        self.held.drop()
        self.work = self._parsed = None
        self.work_bytes = 0

    @property
    def in_frame(self) -> bool:
        """Whether a response has begun that is incomplete."""
        return self._body_left > 0 or bool(self._tail) or self.work is not None

    @property
    def unscanned(self) -> tuple[int, bytes]:
        """Return how many bytes of a recorded response are still to arrive, and the available bytes of the next one."""
        return self._body_left, b"" if self._tail is None else bytes(self._tail)

    @property
    def passing_bytes(self) -> int:
        """Number of the next bytes of a response that pass unchanged; 0 when the next bytes are parsed, held or changed."""
        if self.held.pieces is not None or self._tail is not None:
            return 0
        return self._body_left if self._walker is None else self._walker.passing_bytes

    @property
    def followed_bytes(self) -> int:
        """Number of bytes of the same response behind these."""
        return self._body_left - self.passing_bytes

    @property
    def next_is_own_reply(self) -> bool:
        """Whether the next response to the client is a reply of Sluice's own."""
        return bool(self._in_flight) and self._in_flight[0][0] is None and not self._body_left and self.work is None

    def scan(self, data: bytes, now_ms: int, now_ns: int) -> bytes | memoryview | None:
        """Scan bytes of the broker; return the bytes to send to the client now.

        The code here handles the usual case: one whole response, certainly within its quota, sent unchanged. For any other nothing is
        recorded before `_follow`, except its time (`charged_ms`).

        Args:
            data: the bytes.
            now_ms: monotonic milliseconds.
            now_ns: the same time in nanoseconds, for measurements.

        Raises:
            ProtocolError: the response belongs to no request, or contains an address that has no listener.
        """
        in_flight, frame_bytes = self._in_flight, len(data)
        if (
            not in_flight
            or self._body_left
            or self._tail is not None
            or self.held.pieces is not None
            or frame_bytes < RESPONSE_HEAD_BYTES
            or self._throttle.active
        ):
            return self._follow(data, now_ms, now_ns)
        expected, head, request_size, _, forwarded_ns = in_flight[0]
        size, correlation_id = HEAD.unpack_from(data)
        is_this = size + LENGTH_BYTES == frame_bytes and correlation_id == expected
        if not is_this or not (head.is_bare or is_plain(head, data, 0, frame_bytes)):
            if size + LENGTH_BYTES < frame_bytes and self._runs is not None and self._runs.record_all(data, size, now_ms, now_ns):
                return data
            return self._follow(data, now_ms, now_ns)
        timed = self.request_time
        request_quota = timed.request_quota
        if request_quota is not None and request_quota.enabled and head.work is not None:
            if head.work.of_login or request_quota.custom_callback:  # which is called once per group and response, not twice
                return self._follow(data, now_ms, now_ns)
            timed.charged_ms = timed.take(head, size, request_size, forwarded_ns, 0, now_ms, now_ns)
            if timed.charged_ms:
                return self._follow(data, now_ms, now_ns)
        # The following lines are `AnswerVerdicts.judge` and `RequestContext.count` for one response, inlined: docs/adr/0009.
        client, cell, kind = head.client, head.cell, head.kind
        if kind == PRODUCE:
            amount, group = request_size, client.produce(now_ms)
            if group is not None and not group.record_within(amount, now_ms):
                return self._follow(data, now_ms, now_ns)
            if cell is None:
                client.usage.own_produce_bytes += amount
        elif kind == FETCH:
            amount, group, fetches = size - head.api.response_header_version, None, self._fetch_admission
            if fetches.paced is not None and (charged := fetches.answered_at_once(client, amount, now_ms)) is not None:
                if self._meter is not None:
                    self.verdicts.note_usual(head, charged, amount, now_ms)
            else:
                group = client.fetch(now_ms)
                if group is not None and not group.record_within(amount, now_ms):
                    return self._follow(data, now_ms, now_ns)
                fetches.answered(amount)
            if cell is None:
                client.usage.own_fetch_bytes += amount
            else:
                cell.fetch_bytes += amount
        else:
            amount, group = 0, None
        if cell is not None:
            cell.requests += 1
            cell.request_bytes += request_size
            cell.response_bytes += size
            meter = self._meter
            if group is not None and meter is not None and not meter.passes(group, amount, now_ms):
                meter.passed(group, amount, now_ms, self._number, head.index)
        in_flight.popleft()
        timed.answers += 1
        timed.charged_ms = NOT_CHARGED
        head.latencies[(now_ns - forwarded_ns >> SHIFT).bit_length()] += 1
        return data

    def _follow(self, data: bytes, now_ms: int, now_ns: int) -> bytes | memoryview | None:
        """Do what `scan` does, in all cases."""
        body_left = self._body_left
        if body_left > len(data) and self._walker is None and self.held.pieces is None and self._tail is None:
            self._body_left = body_left - len(data)
            return data
        if self._tail is not None:
            self._tail += data
            self._settle_flag.needs_settle = True
            if self._login_responses.are_tokens:
                passed = self._login_responses.scan_tokens(self._tail)
                if not self._login_responses.are_tokens:
                    self._tail = None
                return passed
            if self.work is not None or len(self._tail) < self._tail_need:
                return None
            tail, self._tail = self._tail, None
            # a long one is not copied: nothing is appended to it any more
            return self._follow_on(bytes(tail) if len(tail) <= AT_ONCE_BYTES else memoryview(tail), now_ms, now_ns)
        if body_left:
            return self._follow_on(data, now_ms, now_ns)
        at = self._pass_runs(data, 0, now_ms, now_ns)
        if at == len(data):
            return data
        out = self._scan_answers(data, 0, at, now_ms, now_ns)
        return out[0] if len(out) == 1 else joined(out)

    def _follow_on(self, data: bytes | memoryview, now_ms: int, now_ns: int) -> bytes | memoryview | None:
        """Continue after the bytes followed so far."""
        body_left = self._body_left
        if body_left:
            if body_left <= len(data) and self.request_time.paying is not None:
                self.request_time.charge_rest(self.request_time.paying, now_ms, now_ns)
            if self._walker is not None:
                return self._walk_on(data, now_ms, now_ns)
            if body_left >= len(data):
                self._body_left = body_left - len(data)
                return self._emit(data)
        at = self._pass_runs(data, body_left, now_ms, now_ns)
        return joined(self._scan_answers(data, 0, at, now_ms, now_ns))

    def pass_body(self, size: int, now_ms: int, now_ns: int) -> None:
        """Count bytes of the broker, at most `passing_bytes`, that go to the client unchanged."""
        if size == self._body_left and self.request_time.paying is not None:
            self.request_time.charge_rest(self.request_time.paying, now_ms, now_ns)
        self._body_left -= size
        if self._walker is not None:
            self._walker.pass_on(size)

    def _pass_runs(self, data: bytes | memoryview, at: int, now_ms: int, now_ns: int) -> int:
        """Record responses from `at` on that equal each other, as far as they are certainly within their quotas; return their end."""
        if self.held.pieces is not None or len(self._in_flight) < RESPONSES_MIN:
            return at
        if self._runs is None:
            self._runs = ResponseRuns(self._in_flight, self._requests, self._throttle, self.verdicts)
        return self._runs.record(data, at, now_ms, now_ns)

    def take_own_replies(self, now_ms: int) -> bytes | None:
        """Return the due replies of Sluice's own, unless they or a response before them are held."""
        if self._body_left or self.work is not None:
            return None  # the rest of the response before them is sent first
        return self.own.take_due(now_ms)

    def _emit(self, data: bytes | memoryview | None) -> bytes | memoryview | None:
        """Return bytes to send, or keep them behind a held response."""
        if self.held.pieces is None or data is None:
            return data
        self.held.pieces.append(data)
        return None

    def _scan_answers(self, data: bytes | memoryview, start: int, at: int, now_ms: int, now_ns: int) -> list[bytes | memoryview]:
        """Follow the responses from `at` on; return the pieces to send."""
        end, in_flight, throttle = len(data), self._in_flight, self._throttle
        held = self.held
        out: list[bytes | memoryview] = [] if held.pieces is None else held.pieces
        leaving: list[bytes | memoryview] | None = None  # pieces before a response that is held
        self._body_left = self._parsed_bytes = 0
        is_timed = self.request_time.enabled_times() is not None
        try:
            while at < end:
                if end - at < RESPONSE_HEAD_BYTES:
                    self._keep_tail(data, at, RESPONSE_HEAD_BYTES)
                    break
                size, correlation_id = HEAD.unpack_from(data, at)
                if not in_flight or correlation_id != in_flight[0][0]:
                    out += (data[start:at], self.own.take_before(correlation_id))
                    start = at
                    continue
                frame_bytes = size + LENGTH_BYTES
                if size < LENGTH_BYTES:
                    raise FrameSizeError(f"response of {size} bytes")
                head = in_flight[0][1]
                is_judged = head.kind != PASS or (is_timed and head.work is not None)
                parsed, stays = None, False
                if is_judged or head.rewrite:
                    found = self._scan_ahead(head, data, at, frame_bytes, now_ms, now_ns)
                    if found is None:
                        break
                    parsed, stays = found
                announce_ms = self.verdicts.record(data, at, size, parsed, now_ms, now_ns, is_timed=is_timed)
                if head.kind == LOGIN and self._login_responses.are_tokens:
                    self._tail = bytearray()  # from here on there are no frames
                if is_judged and throttle.active and held.pieces is None and throttle.hold_until_ms > now_ms:
                    leaving = [*out, data[start:at]]
                    out = held.begin(throttle.hold_until_ms)
                    start = at
                if is_judged and held.pieces is not None and throttle.is_throttled and not head.is_question:
                    place = throttle_place(head.api, data[at : at + frame_bytes], parsed)
                    held.note_stamp(place, announce_ms, sum(map(len, out)) + at - start)
                if announce_ms or parsed is not None or (head.rewrite and not stays):
                    piece = data[at : at + frame_bytes]
                    changed = self._change(head, piece, frame_bytes, announce_ms, parsed)
                    if changed is not piece:
                        out += (data[start:at], changed)
                        start = min(at + frame_bytes, end)
                at += frame_bytes
            else:
                self._body_left = at - end
                at = end
        except ProtocolError as error:  # the bytes before an invalid response are still sent
            self.broken = error
            self._settle_flag.needs_settle = True
        if leaving is None and held.pieces is None and not out and start == 0 and at == end:
            return [data]
        if at > start:
            out.append(data[start:at])
        return out if held.pieces is None else leaving or []

    def _scan_ahead(
        self, head: RequestContext, data: bytes | memoryview, at: int, frame_bytes: int, now_ms: int, now_ns: int
    ) -> tuple[ParsedResponse | None, bool] | None:
        """Parse a response that is recorded, or may have to be changed, before its entry is removed from the FIFO.

        Returns:
            The parsed content, and whether the response certainly needs no change. None: it is kept until more has arrived, or
            parsed in steps.
        """
        here_bytes = len(data) - at
        wanted = frame_bytes if head.whole else min(frame_bytes, STAMP_BYTES)
        if here_bytes >= wanted == STAMP_BYTES and data[at + RESPONSE_HEAD_BYTES]:
            wanted = bytes_to_stamp(head.api, data, at, frame_bytes)
        if here_bytes < wanted:
            self._keep_tail(data, at, wanted)
            return None
        if (frame_bytes > SMALL_BYTES or head.ticket is not None) and (head.rewrite or head.whole):
            found = self._parse_long(head, data, at, frame_bytes, now_ms, now_ns)
            if found is None or found[0] is not None or found[1]:
                return found
        return None, bool(head.rewrite) and is_clean(head, head.rewrite, data, at, frame_bytes)

    def _parse_long(
        self, head: RequestContext, data: bytes | memoryview, at: int, frame_bytes: int, now_ms: int, now_ns: int
    ) -> tuple[ParsedResponse | None, bool] | None:
        """Parse a response that is long, or that answers a request of Sluice's own.

        Returns:
            The parsed content, and whether the response certainly needs no change. None: it is parsed in steps, and the bytes from
            it on are followed later.
        """
        parsed, self._parsed = self._parsed, None
        if parsed is not None:
            return parsed, False
        here_bytes = len(data) - at
        if head.rewrite == WALK and AT_ONCE_BYTES < frame_bytes <= here_bytes and is_clean(head, head.rewrite, data, at, frame_bytes):
            return None, True
        if not is_parsed_whole(head, head.rewrite, here_bytes, frame_bytes):
            return None, False
        self._parsed_bytes += frame_bytes if frame_bytes > SMALL_BYTES else 0
        if self._parsed_bytes > AT_ONCE_BYTES:
            self._parse_in_steps(head, data, at, frame_bytes, now_ns)
            return None
        if head.ticket is None:
            return None, False
        return finished(self._parse(head, data[at : at + frame_bytes], now_ms), now_ms), False

    # --- long responses

    def _parse(self, head: RequestContext, frame: bytes | memoryview, now_ms: int) -> Steps[ParsedResponse]:
        """Parse a whole response."""
        if head.ticket is not None:
            return head.ticket.parse(frame, now_ms)
        if head.rewrite or head.kind == PRODUCE:
            return self._rewriter.parse(head.api, frame)
        return as_it_came(frame)

    def _parse_in_steps(self, head: RequestContext, data: bytes | memoryview, at: int, frame_bytes: int, now_ns: int) -> None:
        """Parse the long response at `at` in steps; it is sent after that, and those behind it are followed."""
        behind = at + frame_bytes
        frame = data if at == 0 and behind == len(data) else data[at:behind]
        self._begin(self._pass_long(head, frame, now_ns), data[behind:], frame_bytes)

    def _begin(self, work: LongAnswer, behind: bytes | memoryview, size: int) -> None:
        next(work)  # up to its first pause, before which it does nothing
        self.work = work
        self.work_bytes = size
        self._tail = bytearray(behind)
        self._settle_flag.needs_settle = True

    def go_on(self, now_ms: int, now_ns: int) -> bytes | memoryview | None:
        """Do one step of the long response; return bytes to send now. When it is sent, the responses behind it are followed.

        Raises:
            ProtocolError: it does not match its version, or contains an address that has no listener.
        """
        assert self.work is not None
        try:
            return self.work.send(now_ms)
        except StopIteration:
            behind, self._tail = self._tail, None
            self.work, self.work_bytes = None, 0
            return self.scan(bytes(behind), now_ms, now_ns) if behind else None

    def _pass_long(self, head: RequestContext, frame: bytes | memoryview, now_ns: int) -> LongAnswer:
        """Parse a whole response, which arrived at `now_ns`, in steps; then send it in pieces."""
        now_ms = yield None
        parsing = self._parse(head, frame, now_ms)
        try:
            next(parsing)
            while True:
                now_ms = yield None
                parsing.send(now_ms)
        except StopIteration as end:
            self._parsed = end.value
        yield from in_pieces(self._scan_answers(frame, 0, 0, now_ms, now_ns))

    def _walk_in_steps(self, walker: Walker, body: bytes | memoryview, behind: bytes | memoryview) -> bytes | memoryview:
        """Follow a response while it passes. When that takes long it continues in steps (`work`), and nothing is sent yet."""
        if walker.passes_at_once(body):
            return body
        walk = walker.feed(body, Pace())
        try:
            next(walk)
        except StopIteration as end:
            passed: bytes | memoryview = end.value
            if walker.kept_bytes:
                self._settle_flag.needs_settle = True
            return passed
        self._begin(self._pass_walked(walk), behind, len(body))
        return b""

    def _pass_walked(self, walk: Steps[bytes | memoryview]) -> LongAnswer:
        """Follow a piece of a response in steps; then send it."""
        try:
            while True:
                walk.send((yield None))
        except StopIteration as end:
            passed = end.value
        if not self._body_left:
            self._walker = None
        for piece in in_pieces([passed]):
            yield self._emit(piece)

    def _change(
        self, head: RequestContext, piece: bytes | memoryview, frame_bytes: int, announce_ms: int, parsed: ParsedResponse | None
    ) -> bytes | memoryview:
        """Rewrite and stamp the available part of a response; `piece` itself when nothing changes.

        Args:
            parsed: its parsed content; None: it is short, or needs no change at its end.
        """
        changed = piece
        if parsed is None and head.api.key == ApiKey.API_VERSIONS:
            changed = self._rewriter.cut(head.api, piece)
        elif parsed is None and may_change(head, len(piece), frame_bytes):
            parsed = finished(self._rewriter.parse(head.api, piece))
        if parsed is not None:
            changed = parsed.frame
            if not changed:
                return changed  # the response to a request of Sluice's own
        elif head.rewrite == BROKERS:
            beginning = piece if announce_ms <= 0 else announced(head.api, piece, announce_ms)
            known = self._rewriter.with_known_brokers(head.api, beginning, frame_bytes)
            return self._begin_walk(head, beginning, frame_bytes) if known is None else known
        elif head.rewrite == WALK and len(piece) < frame_bytes:
            changed = self._begin_walk(head, piece, frame_bytes)
        if announce_ms and changed:
            at = throttle_place(head.api, changed, parsed)
            if at is not None and at >= 0:
                changed = stamped(changed, at, announce_ms)
        return changed

    def _begin_walk(self, head: RequestContext, piece: bytes | memoryview, frame_bytes: int) -> bytes | memoryview:
        """Follow a response from its beginning; return the bytes of `piece` to send now."""
        self._walker = walker = self._rewriter.walker(head.api, frame_bytes)
        passed = self._walk_in_steps(walker, piece, b"")
        if walker.passes:
            self._walker = None
        return passed

    def _walk_on(self, data: bytes | memoryview, now_ms: int, now_ns: int) -> bytes | memoryview | None:
        """Continue with a response that is followed while it passes."""
        assert self._walker is not None
        body = data if len(data) <= self._body_left else data[: self._body_left]
        rest = data[len(body) :]
        self._body_left -= len(body)
        passed = self._walk_in_steps(self._walker, body, rest)
        if self.work is not None:
            return None
        if self._walker.passes:
            self._walker = None
        if self._body_left:
            return self._emit(passed) if passed else None
        self._walker = None
        if not rest:
            return self._emit(passed)
        return joined(self._scan_answers(b"".join((passed, rest)), 0, len(passed), now_ms, now_ns))

    def _keep_tail(self, data: bytes | memoryview, at: int, need: int) -> None:
        """Keep a response's beginning until `need` bytes of it have arrived."""
        if need > MAX_REWRITTEN_RESPONSE_BYTES:
            raise FrameSizeError(
                f"response of {need} bytes has to be rewritten, limit {MAX_REWRITTEN_RESPONSE_BYTES}", reason="rewrite_limit"
            )
        if len(data) - at >= LENGTH_BYTES:
            (size,) = SIZE.unpack_from(data, at)
            if size < LENGTH_BYTES:
                raise FrameSizeError(f"response of {size} bytes")
        self._tail = bytearray(data[at:])
        self._tail_need = need
        self._settle_flag.needs_settle = True
