"""The broker's bytes: match each answer with its request, count it, hold it or let it go on.

The size of an answer is known from its first four bytes, so the verdict falls before the body is here. Only what must
change changes: four bytes of throttle time, hosts and ports; everything else is the broker's own bytes.
"""

from __future__ import annotations

from struct import Struct

from protocol.api_keys import ApiVersion
from protocol.errors import FrameSizeError, ProtocolError
from protocol.headers import response_header_len
from protocol.limits import MAX_LOGIN_FRAME_BYTES, MAX_REWRITTEN_RESPONSE_BYTES
from protocol.messages.fetch import find_tail
from protocol.messages.produce import walk_produce
from protocol.messages.throttle_time import stamp, throttle_at
from proxy.handler_time import ConnectionHandlerTime
from proxy.latency import SHIFT
from proxy.metering.record import EXCUSED_MS
from proxy.session.attention import Attention
from proxy.session.debt import Debt
from proxy.session.fetch_gate import FetchGate
from proxy.session.heads import Heads
from proxy.session.known_head import ENDPOINTS, FETCH, LOGIN, MUTATION, PASS, PRODUCE, WALK, WHOLE, KnownHead
from proxy.session.login import Login
from proxy.session.mutations.ticket import Refusal, Ticket
from proxy.session.request_side import InFlight
from proxy.session.rewrite import AnswerWalker, Rewriter
from quota.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND, ClientRequestQuotaManager

HEAD = Struct(">ii")  # size, correlation id
HEAD_BYTES = HEAD.size
SIZE = Struct(">i")
LENGTH_BYTES = 4
STAMP_BYTES = 24  # enough of a Fetch answer to reach its throttle time when the header carries no tagged fields


class ResponseSide:
    """What the broker sends on one connection."""

    __slots__ = (
        "_attention",
        "_body_left",
        "_charged_ns",
        "_debt",
        "_gate",
        "_heads",
        "_held",
        "_held_stamps",
        "_in_flight",
        "_login",
        "_meter",
        "_number",
        "_paying",
        "_rewriter",
        "_tail",
        "_tail_need",
        "_timed_group",
        "_walker",
        "answers",
        "broken",
        "hold_until_ms",
        "request_quota",
        "times",
    )

    def __init__(
        self,
        in_flight: InFlight,
        attention: Attention,
        debt: Debt,
        gate: FetchGate,
        rewriter: Rewriter,
        heads: Heads,
        login: Login,
    ) -> None:
        self._login = login
        self._heads = heads
        self._meter = heads.meter
        self._number = heads.number
        self._timed_group: QuotaGroup | None = None  # whose time was charged and gave a verdict that is not noted yet ...
        self._charged_ns = 0  # ... and how much
        self._in_flight = in_flight
        self._attention = attention
        self._debt = debt
        self._gate = gate
        self._rewriter = rewriter
        self._body_left = 0
        self._tail: bytearray | None = None
        self._tail_need = 0
        self._walker: AnswerWalker | None = None
        self._held: list[bytes] | None = None  # what left the broker's socket with or behind a held answer
        self._held_stamps: list[tuple[int, int]] = []  # where in it throttle times stand, and what they announce
        self.hold_until_ms = 0  # above 0: an answer is held until then
        self.answers = 0
        self.request_quota: ClientRequestQuotaManager | None = None  # of the scope; while it is not enabled no time is taken
        self.times: ConnectionHandlerTime | None = None  # made when it is
        self._paying: KnownHead | None = None  # who pays for the answer whose end is to come
        self.broken: ProtocolError | None = None  # nothing behind this leaves; `Connection.settle` ends the connection

    @property
    def held_bytes(self) -> int:
        """Bytes of answers that wait here; the rest of them waits in the broker's socket."""
        held = sum(map(len, self._held)) if self._held else 0
        return held + (0 if self._tail is None else len(self._tail))

    @property
    def in_frame(self) -> bool:
        """Whether an answer has begun that is not here in whole."""
        return self._body_left > 0 or bool(self._tail)

    def scan(self, data: bytes, now_ms: int, now_ns: int) -> bytes | None:
        """Take in bytes of the broker; return what goes to the client now.

        `now_ns` is `now_ms` in nanoseconds, for what is measured rather than scheduled.

        Raises:
            ProtocolError: the answer belongs to no request, or an address would leave that is not ours.
        """
        body_left = self._body_left
        if body_left > len(data) and self._walker is None and self._held is None and self._tail is None:
            self._body_left = body_left - len(data)
            return data
        if self._passes_whole(data, now_ms, now_ns):
            return data
        if self._tail is not None:
            self._tail += data
            if self._login.bare:
                return self._scan_tokens(self._tail)
            if len(self._tail) < self._tail_need:
                return None
            data = bytes(self._tail)
            self._tail = None
        if body_left:
            if body_left <= len(data) and self._paying is not None:
                self._pay_rest(self._paying, now_ms, now_ns)
            if self._walker is not None:
                return self._walk_on(data, now_ms, now_ns)
            if body_left >= len(data):
                self._body_left = body_left - len(data)
                return self._emit(data)
        return self._scan_heads(data, 0, body_left, now_ms, now_ns)

    def _passes_whole(self, data: bytes, now_ms: int, now_ns: int) -> bool:
        """Note the answer that most are: one, whole, within its quota for certain, to go on as it came. False: nothing was done."""
        in_flight = self._in_flight
        if not in_flight or self._body_left or self._tail is not None or self._held is not None or self._debt.active:
            return False
        expected, head, request_size, _, forwarded_ns = in_flight[0]
        if len(data) < HEAD_BYTES or head.__class__ is not KnownHead:
            return False
        size, correlation_id = HEAD.unpack_from(data)
        if size + LENGTH_BYTES != len(data) or correlation_id != expected:
            return False
        request_quota = self.request_quota
        if request_quota is not None and request_quota.enabled and head.work is not None:
            return False
        if not head.is_bare and not _is_plain(head, data):
            return False
        client = head.client
        amount, group = 0, None
        if head.kind == PRODUCE:
            amount, group = request_size, client.produce(now_ms)
            if group is not None and not group.record_within(amount, now_ms):
                return False
            client.usage.produce_bytes += amount
        elif head.kind == FETCH:
            amount, group = size - head.api.response_header_version, client.fetch(now_ms)
            if group is not None and not group.record_within(amount, now_ms):
                return False
            client.usage.fetch_bytes += amount
            self._gate.answered(amount)
        meter = self._meter
        if meter is not None:
            cell = head.cell
            if cell is not None:
                cell.requests += 1
                cell.request_bytes += request_size
                cell.response_bytes += size
                if head.kind == FETCH:
                    cell.fetch_bytes += amount
            if group is not None:
                meter.passed(group, amount, now_ms, self._number, head.index)
        in_flight.popleft()
        self.answers += 1
        head.latencies[(now_ns - forwarded_ns >> SHIFT).bit_length()] += 1
        return True

    def release(self, now_ms: int) -> bytes | None:
        """The hold is over, or is ended early: return what waited; what is left of its wait is announced in it."""
        held, self._held = self._held, None
        stamps, self._held_stamps = self._held_stamps, []
        left_ms = self.hold_until_ms - now_ms
        self.hold_until_ms = 0
        if not held:
            return None
        released = bytearray().join(held)
        if left_ms > 0:
            for at, announced_ms in stamps:
                stamp(released, at, announced_ms + left_ms)
        return bytes(released)

    def take_own_replies(self, now_ms: int) -> bytes | None:
        """Replies of our own whose turn has come, to be sent now unless they or an answer before them are held."""
        in_flight = self._in_flight
        leaving: list[bytes] = []
        while in_flight and in_flight[0][0] is None:
            _, reply, _, received_ms, _ = in_flight.popleft()
            if isinstance(reply, Refusal):
                reply = self._judge_refusal(reply, received_ms, now_ms)
            assert isinstance(reply, bytes)
            (leaving if self._held is None else self._held).append(reply)
        return b"".join(leaving) if leaving else None

    def _judge_refusal(self, refusal: Refusal, received_ms: int, now_ms: int) -> bytes:
        """Treat a reply of our own that refuses like the answer of a broker: it is held or announces the wait."""
        throttle_ms = refusal.left_ms(now_ms)
        if throttle_ms > 0:
            refusal.client.mutation_throttled(refusal.group, throttle_ms, now_ms)
        debt = self._debt
        announce_ms = debt.judge(refusal.client, throttle_ms, refusal.group, now_ms, received_ms, len(self._in_flight))
        reply, stamp_at = refusal.answer(announce_ms)
        if self._held is None and debt.hold_until_ms > now_ms:
            self._held = []
            self.hold_until_ms = debt.hold_until_ms
        if self._held is not None and stamp_at is not None:
            self._held_stamps.append((sum(map(len, self._held)) + stamp_at, announce_ms))
        return reply

    def _emit(self, data: bytes | None) -> bytes | None:
        if self._held is None or data is None:
            return data
        self._held.append(data)
        return None

    def _scan_heads(self, data: bytes, start: int, at: int, now_ms: int, now_ns: int) -> bytes | None:
        """Follow the answers from `at` on; return what may leave."""
        end = len(data)
        in_flight = self._in_flight
        debt = self._debt
        out: list[bytes] = [] if self._held is None else self._held
        leaving: list[bytes] | None = None  # what was before an answer that is held
        self._body_left = 0
        request_quota = self.request_quota
        times = None if request_quota is None or not request_quota.enabled else self.times or self._take_times()
        try:
            while at < end:
                if end - at < HEAD_BYTES:
                    self._keep_tail(data, at, HEAD_BYTES)
                    break
                size, correlation_id = HEAD.unpack_from(data, at)
                if not in_flight:
                    raise ProtocolError(f"answer {correlation_id} although no request is in flight", reason="response_unsolicited")
                expected, head, request_size, received_ms, forwarded_ns = in_flight[0]
                if correlation_id != expected:
                    if expected is not None:
                        raise ProtocolError(f"answer {correlation_id} where {expected} was due", reason="response_mismatch")
                    out += (data[start:at], head.answer(0)[0] if isinstance(head, Refusal) else head)  # type: ignore[arg-type]
                    start = at
                    in_flight.popleft()
                    continue
                frame_bytes = size + LENGTH_BYTES
                if size < LENGTH_BYTES:
                    raise FrameSizeError(f"answer of {size} bytes")
                kind: int = head.kind  # type: ignore[union-attr]
                rewrite: int = head.rewrite  # type: ignore[union-attr]
                timed = times is not None and head.work is not None  # type: ignore[union-attr]
                if kind or rewrite or timed:
                    wanted = frame_bytes if head.whole else min(frame_bytes, STAMP_BYTES)  # type: ignore[union-attr]
                    if end - at >= wanted == STAMP_BYTES and data[at + HEAD_BYTES]:
                        wanted = _bytes_to_stamp(head.api, data, at, frame_bytes)  # type: ignore[union-attr]
                    if end - at < wanted:
                        self._keep_tail(data, at, wanted)
                        break
                in_flight.popleft()
                self.answers += 1
                head.latencies[(now_ns - forwarded_ns >> SHIFT).bit_length()] += 1  # type: ignore[union-attr]
                cell = head.cell  # type: ignore[union-attr]
                if cell is not None:
                    cell.requests += 1
                    cell.request_bytes += request_size
                    cell.response_bytes += size
                announce_ms = 0
                if kind or timed:
                    time_ms = 0
                    if timed:
                        time_ms = self._take_time(head, size, request_size, forwarded_ns, end - at - frame_bytes, now_ms, now_ns)  # type: ignore[arg-type]
                    announce_ms = self._judge(head, data, at, size, request_size, received_ms, time_ms, now_ms)  # type: ignore[arg-type]
                    if debt.active and self._held is None and debt.hold_until_ms > now_ms:
                        leaving = [*out, data[start:at]]
                        self._held = out = []
                        self.hold_until_ms = debt.hold_until_ms
                        start = at
                    if self._held is not None and debt.in_debt:
                        self._note_stamp(head.api, data, at, frame_bytes, announce_ms, sum(map(len, out)) + at - start)  # type: ignore[union-attr]
                elif debt.active:
                    debt.pass_answer()
                if (rewrite or announce_ms) and (announce_ms or not _is_clean(head, rewrite, data, at, frame_bytes)):  # type: ignore[arg-type]
                    piece = data[at : at + frame_bytes]
                    changed = self._change(head, piece, frame_bytes, announce_ms)  # type: ignore[arg-type]
                    if changed is not piece:
                        out += (data[start:at], changed)
                        start = min(at + frame_bytes, end)
                at += frame_bytes
            else:
                self._body_left = at - end
                at = end
        except ProtocolError as error:  # what came before the broken answer still leaves
            self.broken = error
            self._attention.wanted = True
        if leaving is None and self._held is None and not out and start == 0 and at == end:
            return data
        if at > start:
            out.append(data[start:at])
        if self._held is not None:
            out = leaving or []
        return b"".join(out) if out else None

    def _judge(
        self, head: KnownHead, data: bytes, at: int, size: int, request_size: int, received_ms: int, time_ms: int, now_ms: int
    ) -> int:
        """Record what the request brought or the answer brings; return milliseconds to announce in the answer.

        `time_ms` is what the time of the request says already; the longer of the two throttles holds, and only it is in the books.
        """
        client, meter = head.client, self._meter
        if head.kind >= MUTATION:
            if head.kind == LOGIN:
                self._settle_login(head, data[at : at + size + LENGTH_BYTES], received_ms)
                return 0
            return self._settle_changes(head, data[at : at + size + LENGTH_BYTES], received_ms, time_ms, now_ms)
        group: QuotaGroup | None
        if head.kind == PRODUCE:
            amount = request_size
            client.usage.produce_bytes += amount
            group = client.produce(now_ms)
        elif head.kind == FETCH:
            # Kafka meters 4 + body: the frame without its length, its correlation id standing for the 4
            amount = size
            if head.api.response_header_version:
                no_tags = size > LENGTH_BYTES and data[at + HEAD_BYTES] == 0
                amount -= 1 if no_tags else (response_header_len(head.api, data, at) or HEAD_BYTES) - LENGTH_BYTES
            client.usage.fetch_bytes += amount
            if head.cell is not None:
                head.cell.fetch_bytes += amount
            self._gate.answered(amount)
            group = client.fetch(now_ms)
        else:
            amount, group = 0, None
        throttle_ms = 0 if group is None else group.record(amount, now_ms)
        debt = self._debt
        if meter is not None:
            if throttle_ms <= 0 >= time_ms:
                if group is not None:
                    meter.passed(group, amount, now_ms, self._number, head.index)
            else:
                self._note_verdict(head, group, amount, throttle_ms, time_ms, now_ms)
        if throttle_ms <= 0 >= time_ms and not debt.active:
            return 0
        if throttle_ms > time_ms and group is not None:
            (client.produce_throttled if head.kind == PRODUCE else client.fetch_throttled)(group, throttle_ms, now_ms)
            return debt.judge(client, throttle_ms, group, now_ms, received_ms, len(self._in_flight))
        return self._judge_time(head, time_ms, received_ms, now_ms, is_limited=group is not None)

    def _note_verdict(self, head: KnownHead, group: QuotaGroup | None, amount: int, throttle_ms: int, time_ms: int, now_ms: int) -> None:
        """Meter verdicts with what the client is made to wait for them: the longer of the two, or less where that is excused."""
        waits_ms = throttle_ms if throttle_ms > time_ms and group is not None else min(time_ms, self._heads.throttle_max_ms)
        if head.cell is not None:
            head.cell.throttled(max(throttle_ms, time_ms))
        only_observes = head.client.enforcement.only_observes
        if only_observes:
            waits_ms = 0
        meter, timed_group = self._meter, self._timed_group
        assert meter is not None
        if timed_group is not None:
            self._timed_group = None
            applied_ms = _applied_ms(waits_ms, time_ms, only_observes=only_observes)
            meter.record(timed_group, self._charged_ns, time_ms, applied_ms, now_ms, self._number, head.index)
        if group is not None:
            throttle_ms = max(throttle_ms, 0)
            applied_ms = _applied_ms(waits_ms, throttle_ms, only_observes=only_observes)
            meter.record(group, amount, throttle_ms, applied_ms, now_ms, self._number, head.index)

    def _judge_time(self, head: KnownHead, time_ms: int, received_ms: int, now_ms: int, *, is_limited: bool) -> int:
        """Take in the verdict on a request's time, where no other is longer; `is_limited`: another quota applies to it too."""
        debt, client = self._debt, head.client
        timed_by = None if head.work is None else client.request(now_ms)
        if time_ms > 0 and timed_by is not None:
            client.request_throttled(timed_by, time_ms, now_ms)
            return debt.judge(client, min(time_ms, self._heads.throttle_max_ms), timed_by, now_ms, received_ms, len(self._in_flight))
        if head.kind == PASS and not debt.is_of(timed_by):
            debt.pass_answer()
        elif timed_by is None and not is_limited:
            debt.judge_free()
        else:
            debt.judge_within(client, now_ms)
        return 0

    def _take_time(
        self, head: KnownHead, size: int, request_size: int, forwarded_ns: int, beyond_bytes: int, now_ms: int, now_ns: int
    ) -> int:
        """Charge the time of a request whose answer begins here; return the throttle time in ms.

        Args:
            beyond_bytes: how many bytes were read behind the end of the answer; below zero: so many are to come.
        """
        work, times, client = head.work, self.times, head.client
        assert work is not None
        assert times is not None
        amount = request_size if work.by_request else size
        if beyond_bytes >= 0:
            charged_ns = int(times.charge(work, amount, forwarded_ns, now_ns, last=beyond_bytes == 0))
        else:
            charged_ns = int(times.charge_head(work, amount, forwarded_ns, now_ns))
            self._paying = head
        if times.rtt_due <= 0:
            self._attention.wanted = True
        client.usage.request_ns += charged_ns
        if head.cell is not None:
            head.cell.handler_ns += charged_ns
        group = client.request(now_ms)
        if group is None:
            if client.is_exempt:
                client.exempt(charged_ns, now_ms)
            return 0
        throttle_ms = group.record(charged_ns * PERCENT_PER_NANOSECOND, now_ms)
        if self._meter is not None:
            if throttle_ms <= 0:
                self._meter.passed(group, charged_ns, now_ms, self._number, head.index)
            else:
                self._timed_group, self._charged_ns = group, charged_ns
        return throttle_ms

    def _pay_rest(self, head: KnownHead, now_ms: int, now_ns: int) -> None:
        """The end of an answer is here: what it cost beyond what its head was charged for counts without a verdict, as in Kafka."""
        self._paying = None
        if self.times is None:
            return
        rest_ns, client = int(self.times.charge_end(now_ns)), head.client
        client.usage.request_ns += rest_ns
        if head.cell is not None:
            head.cell.handler_ns += rest_ns
        group = client.request(now_ms)
        if rest_ns and group is not None:
            group.record_unchecked(rest_ns * PERCENT_PER_NANOSECOND, now_ms)
            if self._meter is not None:
                self._meter.record_unchecked(group, rest_ns, now_ms, self._number, head.index)

    def _take_times(self) -> ConnectionHandlerTime:
        """From here on the time of answers is taken."""
        self.times = ConnectionHandlerTime(self._heads.broker_times)
        return self.times

    def pause(self) -> None:
        """The broker is not read from now on."""
        (self.times or self._take_times()).pause()

    def resume(self, now_ns: int) -> None:
        """It is read again."""
        if self.times is not None:
            self.times.resume(now_ns)

    def _settle_login(self, head: KnownHead, frame: bytes, sent_ms: int) -> None:
        """Take in what the broker says of a message of its client's login."""
        if self._debt.active:
            self._debt.pass_answer()
        self._login.answered(head.api, frame, sent_ms)
        self._login_went_on()
        if self._login.bare:
            self._tail = bytearray()  # from here on there are no heads

    def _login_went_on(self) -> None:
        self._debt.logging_in = self._login.under_way
        self._attention.wanted = True

    def _scan_tokens(self, tail: bytearray) -> bytes | None:
        """Follow the broker's tokens where they travel bare."""
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
        if not self._login.bare:
            self._tail = None
            if tail:
                raise ProtocolError("an answer although no request is in flight", reason="response_unsolicited")
        return bytes(leaving) or None

    def _settle_changes(self, head: KnownHead, frame: bytes, received_ms: int, time_ms: int, now_ms: int) -> int:
        """Charge what the answer says became of topics; return milliseconds to announce in it."""
        ticket = head.ticket
        assert isinstance(ticket, Ticket)
        throttle_ms = ticket.settle(frame, now_ms)
        if self._meter is not None and time_ms > 0:
            self._note_verdict(head, None, 0, throttle_ms, time_ms, now_ms)
        elif throttle_ms > 0 and head.cell is not None:
            head.cell.throttled(throttle_ms)
        if throttle_ms <= 0 >= time_ms and not self._debt.active:
            return 0
        if time_ms > 0 and time_ms >= throttle_ms:
            return self._judge_time(head, time_ms, received_ms, now_ms, is_limited=True)
        if throttle_ms > 0:
            head.client.mutation_throttled(ticket.group, throttle_ms, now_ms)
        return self._debt.judge(head.client, throttle_ms, ticket.group, now_ms, received_ms, len(self._in_flight))

    def _note_stamp(self, api: ApiVersion, data: bytes, at: int, frame_bytes: int, announce_ms: int, held_at: int) -> None:
        """Remember where a held answer, which will stand at `held_at` of what is held, says how long its client is throttled."""
        place = throttle_at(api, data[at : at + frame_bytes])
        if place is not None and place >= 0:
            self._held_stamps.append((held_at + place, announce_ms))

    def _change(self, head: KnownHead, piece: bytes, frame_bytes: int, announce_ms: int) -> bytes:
        """Rewrite and stamp what is here of an answer; `piece` itself when nothing changes."""
        changed = piece
        if head.ticket is not None:
            changed = head.ticket.rewrite(piece)
            if not changed:
                return changed  # the answer to a question of ours
        elif head.rewrite in (WHOLE, ENDPOINTS) or (head.rewrite == WALK and len(piece) == frame_bytes):
            changed = self._rewriter.rewrite(head.api, piece)
        elif head.rewrite == WALK:
            self._walker = self._rewriter.walker(head.api, frame_bytes)
            changed = self._walker.feed(piece)
        if announce_ms:
            at = throttle_at(head.api, changed)
            if at is not None and at >= 0:
                stamped = bytearray(changed)
                stamp(stamped, at, announce_ms)
                changed = bytes(stamped)
        return changed

    def _walk_on(self, data: bytes, now_ms: int, now_ns: int) -> bytes | None:
        """Go on with an answer that is followed while it passes."""
        assert self._walker is not None
        body = data if len(data) <= self._body_left else data[: self._body_left]
        passed = self._walker.feed(body)
        self._body_left -= len(body)
        if self._body_left:
            return self._emit(passed) if passed else None
        self._walker = None
        rest = data[len(body) :]
        return self._scan_heads(passed + rest, 0, len(passed), now_ms, now_ns)

    def _keep_tail(self, data: bytes, at: int, need: int) -> None:
        """Keep an answer's beginning until `need` bytes of it are here."""
        if need > MAX_REWRITTEN_RESPONSE_BYTES:
            raise FrameSizeError(
                f"answer of {need} bytes has to be rewritten, limit {MAX_REWRITTEN_RESPONSE_BYTES}", reason="rewrite_limit"
            )
        if len(data) - at >= LENGTH_BYTES:
            (size,) = SIZE.unpack_from(data, at)
            if size < LENGTH_BYTES:
                raise FrameSizeError(f"answer of {size} bytes")
        self._tail = bytearray(data[at:])
        self._tail_need = need


def _applied_ms(waits_ms: int, throttle_ms: int, *, only_observes: bool) -> int:
    return waits_ms if waits_ms >= throttle_ms or only_observes else EXCUSED_MS


def _bytes_to_stamp(api: ApiVersion, data: bytes, at: int, frame_bytes: int) -> int:
    """How much of a Fetch answer it takes to reach its throttle time, when its header may carry tagged fields."""
    if not api.response_header_version:
        return STAMP_BYTES
    header_bytes = response_header_len(api, data, at)
    return min(frame_bytes, len(data) - at + 1 if header_bytes is None else header_bytes + STAMP_BYTES)


def _is_clean(head: KnownHead, rewrite: int, data: bytes, at: int, frame_bytes: int) -> bool:
    """Whether an answer that might name new leaders is here in whole and names none, as nearly all of them."""
    if rewrite == ENDPOINTS:
        return not walk_produce(head.api, data, at, at + frame_bytes)[1]
    end = at + frame_bytes
    return rewrite == WALK and end <= len(data) and data[end - 1] == 0 and find_tail(head.api, data, at, end) == frame_bytes - 1


def _is_plain(head: KnownHead, data: bytes) -> bool:
    """Whether a whole answer has a header without tags, and nothing in it may have to change."""
    if head.kind > FETCH or head.rewrite == WHOLE:
        return False
    if head.api.response_header_version and (len(data) == HEAD_BYTES or data[HEAD_BYTES]):
        return False
    try:
        return not head.rewrite or _is_clean(head, head.rewrite, data, 0, len(data))
    except ProtocolError:  # for who can say so
        return False
