"""The broker's bytes: match each answer with its request, count it, hold it or let it go on.

The size of an answer is known from its first four bytes, so the verdict falls before the body is here. Only what must
change changes: four bytes of throttle time, hosts and ports; everything else is the broker's own bytes.
"""

from __future__ import annotations

from struct import Struct

from protocol.api_keys import ApiVersion
from protocol.errors import FrameSizeError, ProtocolError
from protocol.headers import response_header_len
from protocol.limits import MAX_REWRITTEN_RESPONSE_BYTES
from protocol.messages.fetch import find_tail
from protocol.messages.produce import walk_produce
from protocol.messages.throttle_time import stamp, throttle_at
from proxy.session.attention import Attention
from proxy.session.debt import Debt
from proxy.session.fetch_gate import FetchGate
from proxy.session.known_head import ENDPOINTS, MUTATION, PRODUCE, WALK, WHOLE, KnownHead
from proxy.session.mutations.ticket import Refusal, Ticket
from proxy.session.request_side import InFlight
from proxy.session.rewrite import AnswerWalker, Rewriter

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
        "_debt",
        "_gate",
        "_held",
        "_held_stamps",
        "_in_flight",
        "_rewriter",
        "_tail",
        "_tail_need",
        "_walker",
        "answers",
        "broken",
        "hold_until_ms",
    )

    def __init__(
        self,
        in_flight: InFlight,
        attention: Attention,
        debt: Debt,
        gate: FetchGate,
        rewriter: Rewriter,
    ) -> None:
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
        self.broken: ProtocolError | None = None  # nothing behind this leaves; `Connection.settle` ends the connection

    @property
    def held_bytes(self) -> int:
        """Bytes of answers that wait here; the rest of them waits in the broker's socket."""
        held = sum(map(len, self._held)) if self._held else 0
        return held + (0 if self._tail is None else len(self._tail))

    @property
    def in_frame(self) -> bool:
        """Whether an answer has begun that is not here in whole."""
        return self._body_left > 0 or self._tail is not None

    def scan(self, data: bytes, now_ms: int) -> bytes | None:
        """Take in bytes of the broker; return what goes to the client now.

        Raises:
            ProtocolError: the answer belongs to no request, or an address would leave that is not ours.
        """
        if self._tail is not None:
            self._tail += data
            if len(self._tail) < self._tail_need:
                return None
            data = bytes(self._tail)
            self._tail = None
        body_left = self._body_left
        if body_left:
            if self._walker is not None:
                return self._walk_on(data, now_ms)
            if body_left >= len(data):
                self._body_left = body_left - len(data)
                return self._emit(data)
        return self._scan_heads(data, 0, body_left, now_ms)

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
            _, reply, _, received_ms = in_flight.popleft()
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
        announce_ms = debt.judge(throttle_ms, refusal.group, now_ms, received_ms, len(self._in_flight))
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

    def _scan_heads(self, data: bytes, start: int, at: int, now_ms: int) -> bytes | None:
        """Follow the answers from `at` on; return what may leave."""
        end = len(data)
        in_flight = self._in_flight
        debt = self._debt
        out: list[bytes] = [] if self._held is None else self._held
        leaving: list[bytes] | None = None  # what was before an answer that is held
        self._body_left = 0
        try:
            while at < end:
                if end - at < HEAD_BYTES:
                    self._keep_tail(data, at, HEAD_BYTES)
                    break
                size, correlation_id = HEAD.unpack_from(data, at)
                if not in_flight:
                    raise ProtocolError(f"answer {correlation_id} although no request is in flight", reason="response_unsolicited")
                expected, head, request_size, received_ms = in_flight[0]
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
                if kind or rewrite:
                    wanted = frame_bytes if kind == PRODUCE or rewrite == WHOLE else min(frame_bytes, STAMP_BYTES)
                    if end - at >= wanted == STAMP_BYTES and data[at + HEAD_BYTES]:
                        wanted = _bytes_to_stamp(head.api, data, at, frame_bytes)  # type: ignore[union-attr]
                    if end - at < wanted:
                        self._keep_tail(data, at, wanted)
                        break
                in_flight.popleft()
                self.answers += 1
                announce_ms = 0
                if kind:
                    announce_ms = self._measure(head, data, at, size, request_size, received_ms, now_ms)  # type: ignore[arg-type]
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

    def _measure(self, head: KnownHead, data: bytes, at: int, size: int, request_size: int, received_ms: int, now_ms: int) -> int:
        """Record what the request brought or the answer brings; return milliseconds to announce in the answer."""
        client = head.client
        if head.kind == MUTATION:
            return self._settle_changes(head, data[at : at + size + LENGTH_BYTES], received_ms, now_ms)
        if head.kind == PRODUCE:
            amount = request_size
            client.usage.produce_bytes += amount
            group = client.produce(now_ms)
        else:
            # Kafka meters 4 + body: the frame without its length, its correlation id standing for the 4
            amount = size
            if head.api.response_header_version:
                no_tags = size > LENGTH_BYTES and data[at + HEAD_BYTES] == 0
                amount -= 1 if no_tags else (response_header_len(head.api, data, at) or HEAD_BYTES) - LENGTH_BYTES
            client.usage.fetch_bytes += amount
            self._gate.answered(amount)
            group = client.fetch(now_ms)
        debt = self._debt
        if group is None:
            if debt.active:
                debt.judge_free()
            return 0
        throttle_ms = group.record(amount, now_ms)
        if throttle_ms <= 0 and not debt.active:
            return 0
        if throttle_ms > 0:
            (client.produce_throttled if head.kind == PRODUCE else client.fetch_throttled)(group, throttle_ms, now_ms)
        return debt.judge(throttle_ms, group, now_ms, received_ms, len(self._in_flight))

    def _settle_changes(self, head: KnownHead, frame: bytes, received_ms: int, now_ms: int) -> int:
        """Charge what the answer says became of topics; return milliseconds to announce in it."""
        ticket = head.ticket
        assert isinstance(ticket, Ticket)
        throttle_ms = ticket.settle(frame, now_ms)
        if throttle_ms <= 0 and not self._debt.active:
            return 0
        if throttle_ms > 0:
            head.client.mutation_throttled(ticket.group, throttle_ms, now_ms)
        return self._debt.judge(throttle_ms, ticket.group, now_ms, received_ms, len(self._in_flight))

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
            if at is not None:
                stamped = bytearray(changed)
                stamp(stamped, at, announce_ms)
                changed = bytes(stamped)
        return changed

    def _walk_on(self, data: bytes, now_ms: int) -> bytes | None:
        """Go on with an answer that is followed while it passes."""
        assert self._walker is not None
        body = data if len(data) <= self._body_left else data[: self._body_left]
        passed = self._walker.feed(body)
        self._body_left -= len(body)
        if self._body_left:
            return self._emit(passed) if passed else None
        self._walker = None
        rest = data[len(body) :]
        return self._scan_heads(passed + rest, 0, len(passed), now_ms)

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
