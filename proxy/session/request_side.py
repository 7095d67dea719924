"""The client's bytes: follow the frames, note each request in the FIFO, say how far the bytes may go on.

The data path in one sentence: a frame's first twelve bytes are unpacked, the bytes behind them are compared with the
head seen last for this API version, and the frame goes on; nothing else happens to a request that is like its predecessor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from struct import Struct

from protocol.api_keys import ApiKey
from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import (
    MAX_CHANGE_REQUEST_BYTES,
    MAX_CONFIG_REQUEST_BYTES,
    MAX_HEADER_BYTES,
    MAX_LOGIN_FRAME_BYTES,
    MAX_QUOTA_REQUEST_BYTES,
)
from proxy.session.administered import Administered, is_for_us, read_administered
from proxy.session.attention import Attention
from proxy.session.debt import Debt
from proxy.session.enforcement import IN_FLIGHT_MAX, INT32_MAX, Mode
from proxy.session.fetch_gate import FetchGate
from proxy.session.heads import Heads
from proxy.session.known_head import ADMIN, ANSWER, FETCH, LOGIN, MUTATION, NO_ACK, PRODUCE, KnownHead
from proxy.session.login import Login
from proxy.session.mutations.gate import MutationGate, plain_head, question_head
from proxy.session.mutations.questions import CORRELATION_ID
from proxy.session.mutations.ticket import Refusal
from quota.entity import UNLIMITED
from quota.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND

LENGTH_BYTES = 4
HEAD = Struct(">iIi")  # size, api key and version as one number, correlation id
HEAD_BYTES = HEAD.size
CLIENT_ID = Struct(">iIih")  # the same and the length of the client-id
INT32 = Struct(">i")
FRAMES_PER_TURN = 64
KNOWN_HEADS_MAX = 64
_NEVER_MS = 1 << 62
_OBSERVE = Mode.OBSERVE  # a member of an Enum is found by a call

InFlight = deque[tuple[int | None, "KnownHead | Refusal | bytes", int, int, int]]
"""Correlation id, head, size, time read (ms), time sent on (ns); with None as the correlation id a reply of our own in its turn."""


class Stop(IntEnum):
    """Why scanning stopped before the end of the bytes."""

    NONE = 0
    TURN = 1  # enough for one callback: go on in the next one
    IN_FLIGHT = 2  # go on when an answer came
    THROTTLE = 3  # go on at `resume_at_ms`
    ALONE = 4  # go on when nothing is in flight
    LOGIN = 5  # go on when the broker has answered a message of the client's login
    OURS = 6  # next is a request that is answered here: go on when nothing is in flight
    ANSWERED = 7  # go on when that is answered


class RequestSide:
    """What a client sends on one connection."""

    __slots__ = (
        "_ahead_bytes",
        "_attention",
        "_body_left",
        "_debt",
        "_gate",
        "_head",
        "_heads",
        "_in_flight",
        "_kept",
        "_kept_at",
        "_kept_read_ms",
        "_known",
        "_last_unanswered",
        "_login",
        "_mutations",
        "_reply",
        "_tail",
        "_tail_need",
        "administered",
        "draining",
        "frame_bytes_max",
        "frames",
        "frames_unanswered",
        "in_flight_stop",
        "resume_at_ms",
        "stop",
        "ungated",
    )

    def __init__(
        self,
        in_flight: InFlight,
        attention: Attention,
        debt: Debt,
        gate: FetchGate,
        heads: Heads,
        reply: Callable[[int, KnownHead], bytes],
        frame_bytes_max: int,
        login: Login,
    ) -> None:
        self._in_flight = in_flight
        self._attention = attention
        self._debt = debt
        self._gate = gate
        self._mutations: MutationGate | None = None  # made when it is needed: few connections make or delete topics
        self._heads = heads
        self._reply = reply
        self._login = login
        self.frame_bytes_max = frame_bytes_max
        self._head: KnownHead | None = None  # of the last request
        self._known: dict[int, KnownHead] = {}  # of requests before it, by API version
        self._body_left = 0
        self._last_unanswered = 0  # the number of the last frame that takes no slot in the FIFO
        self._ahead_bytes = 0  # produced bytes in flight behind the first request there; at least as many as there are
        self._tail: bytearray | None = None  # a head that TCP cut in two
        self._tail_need = 0
        self._kept: bytes | None = None  # bytes behind a stop; `_kept_at` is where they begin
        self._kept_at = 0
        self._kept_read_ms = 0  # since when its oldest byte is here: what waits here grows older
        self.stop = Stop.NONE
        self.in_flight_stop = IN_FLIGHT_MAX  # so many were enough when `stop` became IN_FLIGHT
        self.resume_at_ms = 0
        self.ungated = False  # the client is gone or we drain: complete frames go on whatever they cost
        self.draining = False  # no new request goes on; one that has begun may be completed
        self.frames = 0
        self.frames_unanswered = 0
        self.administered: Administered | None = None  # it is being answered here, and what is behind it waits

    @property
    def kept_bytes(self) -> int:
        """Bytes read from the client that have not gone on."""
        kept = 0 if self._kept is None else len(self._kept) - self._kept_at
        if self.administered is not None:
            kept += len(self.administered.frame)
        return kept + (0 if self._tail is None else len(self._tail))

    @property
    def stops_for_us(self) -> bool:
        """Whether a request that is answered here holds up what is behind it."""
        return self.stop is Stop.OURS or self.stop is Stop.ANSWERED

    @property
    def waits_for_us(self) -> bool:
        """Whether it does still."""
        return bool(self._in_flight) if self.stop is Stop.OURS else self.stop is Stop.ANSWERED and self.administered is not None

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun that is not here in whole."""
        return self._body_left > 0 or bool(self._tail)

    @property
    def unfinished(self) -> int:
        """1 when the last one in the FIFO is not here in whole, so that nobody can answer it."""
        return int(self._body_left > 0 and self._last_unanswered != self.frames)

    def forget_heads(self) -> None:
        """Resolve every client anew: principal, scope or settings changed."""
        self._head = None
        self._known.clear()

    def scan(self, data: bytes, now_ms: int, now_ns: int) -> bytes | None:
        """Take in bytes of the client; return what goes to the broker now.

        `now_ns` is `now_ms` in nanoseconds, for what is measured rather than scheduled.

        Raises:
            ProtocolError: the client cannot be understood or asked for what is refused.
        """
        if not self._in_flight and self._passes_alone(data, now_ms, now_ns):
            return data
        if self._kept is not None:  # one more read slipped in behind a stop
            self._kept = self._kept[self._kept_at :] + data
            self._kept_at = 0
            return None
        if self._tail is not None:
            if self._login.bare:
                return self._scan_tokens(self._tail + data, now_ms, now_ns)
            joined = self._join_tail(data)
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

    def _passes_alone(self, data: bytes, now_ms: int, now_ns: int) -> bool:
        """Note the request that most are: one, whole, like the one before it, with nothing in flight. False: nothing was done."""
        head = self._head
        if head is None or self._tail is not None or self._body_left or self._kept is not None or len(data) < HEAD_BYTES:
            return False
        size, index, correlation_id = HEAD.unpack_from(data)
        if (
            size + LENGTH_BYTES != len(data)
            or head.index != index
            or not data.startswith(head.prefix, HEAD_BYTES)
            or not head.size_min <= size <= self.frame_bytes_max
            or self._debt.limits
            or self.draining
        ):
            return False
        client = head.client
        if head.kind >= FETCH:
            if head.kind != FETCH or self.ungated:
                return False
            group = client.fetch(now_ms)
            if (
                group is None
                or client.enforcement.mode is _OBSERVE
                or group.bound != head.cap_bound
                or head.is_lowered
                or not self._gate.passes(group, head.cap_bytes, now_ms)
            ):
                return False
        self._in_flight.append((correlation_id, head, size, now_ms, now_ns))
        client.usage.requests[head.key] += 1
        self.frames += 1
        return True

    def _complete(self, now_ns: int) -> None:
        """The rest of a request goes on now: from here on the broker can work on it."""
        in_flight = self._in_flight
        if in_flight and self._last_unanswered != self.frames:
            correlation_id, head, size, read_ms, _ = in_flight[-1]
            in_flight[-1] = (correlation_id, head, size, read_ms, now_ns)

    def resume(self, now_ms: int, now_ns: int) -> bytes | None:
        """Go on with what was kept back; return what goes to the broker now."""
        if (self.stop is Stop.LOGIN and self._login.awaits) or self.waits_for_us:
            return None
        self.stop = Stop.NONE
        data, at = self._kept, self._kept_at
        if data is None:
            return None
        self._kept = None
        if self._login.bare:
            return self._scan_tokens(bytearray(data[at:]), now_ms, now_ns)
        return self._scan_heads(data, at, at, now_ms, now_ns, self._kept_read_ms)

    def _scan_heads(self, data: bytes | bytearray, start: int, at: int, now_ms: int, now_ns: int, read_ms: int) -> bytes | None:
        """Follow the frames from `at` on, which were read at `read_ms`; everything from `start` up to where it ends goes on."""
        end = len(data)
        head = self._head
        in_flight = self._in_flight
        in_flight_max = self._debt.in_flight_max(now_ms) if self._debt.limits else IN_FLIGHT_MAX
        if self.draining:
            in_flight_max = 0
        turn_ends = self.frames + FRAMES_PER_TURN
        frames = self.frames
        room = -1  # for produced bytes behind others, as far as it is known
        ahead = 0  # so many more may go behind others before their time is known
        self._body_left = 0
        while at < end:
            if end - at < HEAD_BYTES:
                self._keep_tail(data, start, at)
                break
            size, index, correlation_id = HEAD.unpack_from(data, at)
            if (
                head is None
                or head.index != index
                or not data.startswith(head.prefix, at + HEAD_BYTES)
                or not head.size_min <= size <= self.frame_bytes_max
            ):
                head = self._find_head(data, start, at, size, index)
                if head is None:
                    break
                room, ahead = -1, 0
            if in_flight:
                if not ahead:
                    ahead = self._requests_ahead(head, size, now_ms)
                    if not ahead:
                        self._stop(data, at, len(in_flight), now_ms, read_ms)
                        break
                ahead -= 1
            if (len(in_flight) >= in_flight_max or frames == turn_ends) and (not self.ungated or self.draining):
                self._stop(data, at, in_flight_max, now_ms, read_ms)
                break
            if in_flight and head.kind == PRODUCE:
                if room < 0:
                    room = self._room_ahead(head, now_ms)
                    if room < 0:
                        self._stop(data, at, len(in_flight), now_ms, read_ms)
                        break
                room -= size
                self._ahead_bytes += size
            elif head.kind >= FETCH:
                if head.kind == FETCH:
                    group = head.client.fetch(now_ms)
                    if group is None or group.bound >= UNLIMITED or self.ungated or head.client.enforcement.mode is _OBSERVE:
                        self._gate.forwarded(None)
                    else:
                        if not self._admit_fetch(group, head, data, at, now_ms, read_ms):
                            break
                        if head.max_bytes is not None and self._gate.bytes_max < head.max_bytes:
                            data = _lowered(head, data, at, self._gate.bytes_max)
                elif head.kind == NO_ACK:
                    if self._record_unanswered(head, size, now_ms):
                        in_flight_max = 0
                    frames += 1
                    room = -1
                    self._last_unanswered = frames
                    at += size + LENGTH_BYTES
                    continue
                elif head.kind == MUTATION:
                    if self._mutation_gate().judges(head, now_ms):
                        if at + LENGTH_BYTES + size > end:
                            self._keep_whole(data, start, at, size, MAX_CHANGE_REQUEST_BYTES)
                            break
                        data, at, is_judged = self._change_topics(head, data, start, at, size, now_ms, now_ns, read_ms)
                        frames += is_judged
                        if self.stop:
                            break
                        end = len(data)
                        continue
                    head = plain_head(head)
                elif head.kind == LOGIN:
                    if at + LENGTH_BYTES + size > end:
                        self._keep_whole(data, start, at, size, MAX_LOGIN_FRAME_BYTES)
                        break
                    if not self._log_in(head, data, start, at, size, read_ms):
                        break
                    in_flight.append((correlation_id, head, size, read_ms, now_ns))
                    head.client.usage.requests[head.key] += 1
                    frames += 1
                    at += size + LENGTH_BYTES
                    break
                elif head.kind >= ADMIN:
                    is_looked_at = head.kind == ADMIN or size <= MAX_CONFIG_REQUEST_BYTES
                    if is_looked_at and at + LENGTH_BYTES + size > end:
                        self._keep_whole(data, start, at, size, MAX_QUOTA_REQUEST_BYTES)
                        break
                    if is_looked_at and (head.kind == ADMIN or is_for_us(head.api, bytes(data[at : at + LENGTH_BYTES + size]))):
                        self._take_in(head, data, start, at, size, read_ms)
                        frames += self.stop is Stop.ANSWERED
                        break
                    in_flight.append((correlation_id, plain_head(head), size, read_ms, now_ns))  # the next one is looked at, too
                    head.client.usage.requests[head.key] += 1
                    frames += 1
                    at += size + LENGTH_BYTES
                    continue
                else:
                    if at + LENGTH_BYTES + size > end:
                        self._keep_whole(data, start, at, size, MAX_HEADER_BYTES)
                        break
                    in_flight.append((None, self._reply(correlation_id, head), size, read_ms, now_ns))
                    self._attention.wanted = True
                    data = data[:at] + data[at + LENGTH_BYTES + size :]
                    end = len(data)
                    continue
            in_flight.append((correlation_id, head, size, read_ms, now_ns))
            head.client.usage.requests[head.key] += 1
            frames += 1
            at += size + LENGTH_BYTES
        else:
            self._body_left = at - end
            at = end
        self.frames = frames
        if self._debt.limits:
            self._debt.passed(at - start + self._body_left, now_ms)
        if start == 0 and at == len(data):
            return _frozen(data)
        return bytes(data[start:at]) if at > start else None

    def _stop(self, data: bytes | bytearray, at: int, in_flight_max: int, now_ms: int, read_ms: int) -> None:
        """Keep what begins at `at` until the reason is gone."""
        self._keep(data, at, read_ms)
        if in_flight_max == 0:
            self.stop = Stop.THROTTLE
            self.resume_at_ms = max(self._debt.read_off_until_ms, now_ms + 1)
        elif len(self._in_flight) >= in_flight_max:
            self.stop = Stop.IN_FLIGHT
            self.in_flight_stop = in_flight_max
        else:
            self.stop = Stop.TURN

    def _keep(self, data: bytes | bytearray, at: int, read_ms: int) -> None:
        self._kept = _frozen(data)
        self._kept_at = at
        self._kept_read_ms = read_ms
        self._attention.wanted = True

    def _room_ahead(self, head: KnownHead, now_ms: int) -> int:
        """How many more produced bytes may go before those in flight are judged; below 0: those are all that the window can hold.

        Kafka reads a request when the one before it is answered, so none goes on behind one that brings the group over its bound.
        """
        group = head.client.produce(now_ms)
        if group is None or group.bound >= UNLIMITED or self.ungated or head.client.enforcement.mode is _OBSERVE:
            return INT32_MAX
        if self._debt.presses(now_ms):
            return INT32_MAX
        in_flight = self._in_flight
        if len(in_flight) == 1:
            self._ahead_bytes = 0
        room = group.certain_room(now_ms)
        if room < in_flight[0][2] + self._ahead_bytes:  # some of what went ahead may have been judged since
            produced_bytes = self._ahead_bytes = _produced_bytes(in_flight, head)
            if room < produced_bytes:
                return -1 if group.would_throttle_ms(produced_bytes, now_ms) > 0 else 0
            return int(room - produced_bytes)
        return int(room - in_flight[0][2] - self._ahead_bytes)

    def _requests_ahead(self, head: KnownHead, size: int, now_ms: int) -> int:
        """How many more may go before the time of those in flight is known; 0: as far as can be told it is all that the window can hold."""
        group = head.client.request(now_ms)
        if group is None or group.bound >= UNLIMITED or head.work is None or self.ungated or head.client.enforcement.mode is _OBSERVE:
            return INT32_MAX
        each = self._heads.broker_times.estimate(head.work, size) * PERCENT_PER_NANOSECOND
        expected = len(self._in_flight) * each
        room = group.certain_room(now_ms) - expected
        if room >= 0.0:
            return min(1 + int(room / each), INT32_MAX)
        return 0 if group.would_throttle_ms(expected, now_ms) > 0 else 1

    def _admit_fetch(self, group: QuotaGroup, head: KnownHead, data: bytes | bytearray, at: int, now_ms: int, read_ms: int) -> bool:
        """Judge a fetch before it goes to the broker; False: it waits here."""
        gate = self._gate
        if group.bound != head.cap_bound:
            head.cap_bytes = _fetch_bytes_max(group, head)
            head.is_lowered = head.max_bytes is not None and head.cap_bytes < head.max_bytes
            head.cap_bound = group.bound
        debt = self._debt
        press_ms = debt.press_ms(read_ms) if debt.session_ends_ms else _NEVER_MS
        has_step = now_ms >= press_ms or debt.presses(now_ms) or debt.took_step(group)
        if not gate.admits(group, head.cap_bytes, now_ms, read_ms, has_step=has_step):
            if gate.throttle_ms > 0:
                head.client.fetch_throttled(group, gate.throttle_ms, now_ms)
                self._note_wait(group, head, gate.throttle_ms, now_ms)
            self._keep(data, at, read_ms)
            self.stop = Stop.THROTTLE
            self.resume_at_ms = min(gate.wait_until_ms, press_ms)
            return False
        gate.forwarded(group)
        return True

    def _note_wait(self, group: QuotaGroup, head: KnownHead, throttle_ms: int, now_ms: int) -> None:
        """Meter that a fetch waits here: it recorded nothing, so only a trace tells of it beside the client's usage."""
        heads = self._heads
        if heads.meter is not None:
            heads.meter.note(group.limiting, head.cap_bytes, throttle_ms, throttle_ms, now_ms, heads.number, head.index)
        if head.cell is not None:
            head.cell.throttled(throttle_ms)

    def _mutation_gate(self) -> MutationGate:
        if self._mutations is None:
            self._mutations = self._heads.mutation_gate()
        return self._mutations

    def _change_topics(
        self, head: KnownHead, data: bytes | bytearray, start: int, at: int, size: int, now_ms: int, now_ns: int, read_ms: int
    ) -> tuple[bytes | bytearray, int, bool]:
        """Judge the whole request at `at`, which makes or deletes topics.

        Returns:
            The bytes as they go on, where in them the next request begins, and whether the request was judged. With a stop it, or what
            is behind it, is kept back.
        """
        end = at + LENGTH_BYTES + size
        in_flight, gate = self._in_flight, self._mutation_gate()
        may_wait = not self.ungated
        if may_wait and in_flight and gate.waits_for_its_turn(head):
            self._keep(data, at, read_ms)
            self.stop = Stop.ALONE
            return data[:at], at, False
        try:
            passage = gate.judge(head, bytes(data[at:end]), now_ms, may_wait=may_wait)
        except ProtocolError:
            if at == start:
                raise
            self._defer(data, at)
            return data[:at], at, False
        for question in passage.questions:
            in_flight.append((CORRELATION_ID, question_head(question, head), len(question.frame) - LENGTH_BYTES, now_ms, now_ns))
        asked = b"".join(question.frame for question in passage.questions)
        if passage.waits:
            self._keep(data, at, read_ms)
            self.stop = Stop.ALONE
            return data[:at] + asked, at + len(asked), False
        (correlation_id,) = INT32.unpack_from(data, at + LENGTH_BYTES + INT32.size)
        head.client.usage.requests[head.key] += 1
        if passage.head is not None:
            onward = asked + passage.frame
            in_flight.append((correlation_id, passage.head, len(passage.frame) - LENGTH_BYTES, read_ms, now_ns))
            return data[:at] + onward + data[end:], at + len(onward), True
        assert passage.refusal is not None
        self._attention.wanted = True
        if not may_wait:  # nobody waits for its verdict any more
            reply, _ = passage.refusal.answer(passage.refusal.left_ms(now_ms))
            in_flight.append((None, reply, size, read_ms, now_ns))
            return data[:at] + data[end:], at, True
        in_flight.append((None, passage.refusal, size, read_ms, now_ns))
        self._keep(data, end, read_ms)  # what is behind it waits for the verdict
        self.stop = Stop.ALONE
        return data[:at], at, True

    def pass_token(self, frame: memoryview, now_ms: int, now_ns: int) -> bool:
        """Note a token, whole and by itself, that goes to the broker from where it lies. False: it is something else, nothing was done.

        Raises:
            ProtocolError: it cannot be read.
        """
        if self.stop or self._body_left or self._kept is not None or self.draining:
            return False
        if self._login.bare:
            if self._tail or self._login.bare_ends(frame[LENGTH_BYTES : LENGTH_BYTES + 2]):
                return False
            self._login.sent_bare(frame[LENGTH_BYTES:])
        else:
            if self._tail is not None or len(frame) < HEAD_BYTES or len(self._in_flight) >= IN_FLIGHT_MAX:
                return False
            size, index, correlation_id = HEAD.unpack_from(frame)
            if index >> 16 != ApiKey.SASL_AUTHENTICATE:
                return False
            head = self._heads.resolve(frame, 0, size)
            if head is None:
                raise ProtocolError("request head is longer than its frame", reason="bad_header")
            self._login.requested(head.api, frame, HEAD_BYTES + len(head.prefix))
            self._debt.logging_in = True
            self.forget_heads()
            self._in_flight.append((correlation_id, head, size, now_ms, now_ns))
            head.client.usage.requests[head.key] += 1
        self.frames += 1
        if self._login.awaits:
            self._tail = None
            self._keep(b"", 0, now_ms)
            self.stop = Stop.LOGIN
        return True

    def _log_in(self, head: KnownHead, data: bytes | bytearray, start: int, at: int, size: int, read_ms: int) -> bool:
        """Watch a message of a login go to the broker; what is behind it waits for the answer. False: what is before it goes first."""
        end = at + LENGTH_BYTES + size
        try:
            with memoryview(data) as whole, whole[at:end] as frame:
                self._login.requested(head.api, frame, HEAD_BYTES + len(head.prefix))
        except ProtocolError:
            if at == start:
                raise
            self._defer(data, at)
            return False
        self._debt.logging_in = True
        self._keep(data[end:], 0, read_ms)
        self.stop = Stop.LOGIN
        return True

    def _take_in(self, head: KnownHead, data: bytes | bytearray, start: int, at: int, size: int, read_ms: int) -> None:
        """Take the request at `at` to be answered here, when nothing is in flight; until then it is kept with what is behind it."""
        if self._in_flight:
            self._keep(data, at, read_ms)
            self.stop = Stop.OURS
            return
        end = at + LENGTH_BYTES + size
        try:
            self.administered = read_administered(head, bytes(data[at:end]))
        except ProtocolError:
            if at == start:
                raise
            self._defer(data, at)
            return
        head.client.usage.requests[head.key] += 1
        self._keep(data, end, read_ms)
        self.stop = Stop.ANSWERED

    def _scan_tokens(self, tail: bytearray, now_ms: int, now_ns: int) -> bytes | None:
        """Follow tokens that travel bare, each when the one before it was answered."""
        login = self._login
        onward = bytearray()
        while len(tail) >= LENGTH_BYTES:
            (size,) = INT32.unpack_from(tail)
            if not 0 <= size <= MAX_LOGIN_FRAME_BYTES:
                raise FrameSizeError(f"token of {size} bytes, limit {MAX_LOGIN_FRAME_BYTES}")
            end = LENGTH_BYTES + size
            if len(tail) < min(end, LENGTH_BYTES + 2):
                break
            if login.bare_ends(tail[LENGTH_BYTES : min(end, LENGTH_BYTES + 2)]):
                login.end_bare()
                self._tail = None
                rest = self._scan_heads(bytes(tail), 0, 0, now_ms, now_ns, now_ms)
                return bytes(onward) + (rest or b"")
            if len(tail) < end:
                break
            login.sent_bare(tail[LENGTH_BYTES:end])
            onward += tail[:end]
            del tail[:end]
            self.frames += 1
            if login.awaits:
                self._tail = None
                self._keep(tail, 0, now_ms)
                self.stop = Stop.LOGIN
                return bytes(onward)
        self._tail = tail
        return bytes(onward) or None

    def _record_unanswered(self, head: KnownHead, size: int, now_ms: int) -> bool:
        """Count a Produce with acks=0, which nobody answers; return whether reading stops here."""
        client = head.client
        client.usage.requests[head.key] += 1
        client.usage.produce_bytes += size
        self.frames_unanswered += 1
        cell = head.cell
        if cell is not None:
            cell.requests += 1
            cell.request_bytes += size
        if head.work is not None:
            client.exempt(int(self._heads.broker_times.estimate(head.work, size)), now_ms)
        group = client.produce(now_ms)
        if group is None:
            return False
        throttle_ms = group.record(size, now_ms)
        heads = self._heads
        if heads.meter is not None:
            waits_ms = max(0, throttle_ms)
            heads.meter.record(group, size, waits_ms, 0 if client.enforcement.only_observes else waits_ms, now_ms, heads.number, head.index)
            if waits_ms and cell is not None:
                cell.throttled(waits_ms)
        if throttle_ms > 0:
            client.produce_throttled(group, throttle_ms, now_ms)
        if throttle_ms > 0 or self._debt.in_debt:
            self._debt.judge_unanswered(client, throttle_ms, group, now_ms, len(self._in_flight))
        return now_ms < self._debt.read_off_until_ms

    def _find_head(self, data: bytes | bytearray, start: int, at: int, size: int, index: int) -> KnownHead | None:
        """Recognise or read a head that is not like the last one; None: more bytes are needed, or what stands before it goes on first."""
        head = self._known.get(index)
        if head is None or not data.startswith(head.prefix, at + HEAD_BYTES) or not head.size_min <= size <= self.frame_bytes_max:
            head = self._read_head(data, start, at, size)
            if head is None:
                return None
            if head.key == ApiKey.SASL_AUTHENTICATE:
                self.forget_heads()  # from here on the same request may mean something else
        last = self._head
        if last is not None and last.index != index:
            if len(self._known) >= KNOWN_HEADS_MAX:
                self._known.clear()
            self._known[last.index] = last
        self._head = head
        return head

    def _read_head(self, data: bytes | bytearray, start: int, at: int, size: int) -> KnownHead | None:
        """Parse a head that is not like one before."""
        try:
            self._check_size(size)
            head = self._heads.resolve(data, at, size)
            if head is None and len(data) - at >= size + LENGTH_BYTES:
                raise ProtocolError("request head is longer than its frame", reason="bad_header")
        except ProtocolError:
            if at == start:
                raise
            self._defer(data, at)
            return None
        if head is None:
            self._keep_tail(data, start, at)
        return head

    def _check_size(self, size: int) -> None:
        if not 0 < size <= self.frame_bytes_max:
            raise FrameSizeError(f"request frame of {size} bytes, limit {self.frame_bytes_max}")
        if size < HEAD_BYTES - LENGTH_BYTES:
            raise ProtocolError(f"frame of {size} bytes holds no request header", reason="bad_header")

    def _defer(self, data: bytes | bytearray, at: int) -> None:
        """Let the frames before a broken one go on; it is met again, and then first, in the next turn."""
        self._keep(data, at, self._kept_read_ms)
        self.stop = Stop.TURN

    def _keep_tail(self, data: bytes | bytearray, start: int, at: int) -> None:
        """Keep a head that is not here in whole; it grows by what comes, never by what it claims."""
        have = len(data) - at
        need = LENGTH_BYTES
        if have >= LENGTH_BYTES:
            (size,) = INT32.unpack_from(data, at)
            try:
                self._check_size(size)
            except ProtocolError:
                if at == start:
                    raise
                self._defer(data, at)
                return
            need = HEAD_BYTES
            if have >= CLIENT_ID.size:  # wait for twice as much: a head that comes byte by byte is not read anew at each
                *_, client_id_bytes = CLIENT_ID.unpack_from(data, at)
                need = min(max(2 * have, CLIENT_ID.size + client_id_bytes), size + LENGTH_BYTES)
        self._tail = bytearray(data[at:])
        self._tail_need = max(need, have + 1)

    def _keep_whole(self, data: bytes | bytearray, start: int, at: int, size: int, size_max: int) -> None:
        """Keep a request that is looked at as a whole until it is here."""
        if size > size_max:
            if at > start:
                self._defer(data, at)
                return
            raise FrameSizeError(f"request of {size} bytes that has to be here in whole, limit {size_max}")
        self._tail = bytearray(data[at:])
        self._tail_need = size + LENGTH_BYTES

    def _join_tail(self, data: bytes) -> bytes | None:
        assert self._tail is not None
        self._tail += data
        if len(self._tail) < self._tail_need:
            return None
        joined = bytes(self._tail)
        self._tail = None
        return joined


def _produced_bytes(in_flight: InFlight, head: KnownHead) -> int:
    """Bytes of Produce requests in flight that count for the client of `head`."""
    usage = head.client.usage
    return sum(size for _, one, size, _, _ in in_flight if isinstance(one, KnownHead) and one.kind == PRODUCE and one.client.usage is usage)


def _fetch_bytes_max(group: QuotaGroup, head: KnownHead) -> int:
    """The most that a fetch may bring: what it asks for, within what the quota's window can hold. Source: Kafka 3.8, the fetch cap."""
    asked = INT32_MAX if head.max_bytes is None else head.max_bytes
    return int(min(group.max_value_in_window(), asked))


def _lowered(head: KnownHead, data: bytes | bytearray, at: int, bytes_max: int) -> bytearray:
    """Lower max_bytes of a fetch, and min_bytes with it, as Kafka does; else it would be over quota for ever."""
    patched = data if isinstance(data, bytearray) else bytearray(data)
    INT32.pack_into(patched, at + head.max_bytes_at, bytes_max)
    if head.min_bytes > bytes_max:
        INT32.pack_into(patched, at + head.min_bytes_at, bytes_max)
    return patched


def _frozen(data: bytes | bytearray) -> bytes:
    """What was patched goes on as bytes of its own."""
    return bytes(data) if isinstance(data, bytearray) else data


assert FETCH < NO_ACK < ANSWER
