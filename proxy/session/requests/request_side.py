"""The client's bytes: follow the frames, note each request in the FIFO, say how far the bytes may go on.

The data path in one sentence: a frame's first twelve bytes are unpacked, the bytes behind them are compared with the
head seen last for this API version, and the frame goes on; nothing else happens to a request that is like its predecessor.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.api_keys import ApiKey
from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from proxy.enforcement.groups.enforced_groups import EnforcedGroup, Stepper
from proxy.enforcement.mode import IN_FLIGHT_MAX, INT32_MAX, Mode
from proxy.session.attention import Attention
from proxy.session.in_flight import InFlight
from proxy.session.login.login import Login
from proxy.session.mutations.charge import is_strict
from proxy.session.mutations.filter import plain_head
from proxy.session.request_context import ANSWER, FETCH, MUTATION, NO_ACK, PRODUCE, RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.kept_requests import HEAD, INT32, Stop, frozen
from proxy.session.requests.requests_ahead import RequestsAhead
from proxy.session.requests.unfinished_frame import UnfinishedFrame
from proxy.session.requests.whole_requests import WholeRequests
from proxy.session.throttle.departed_debts import longest_debt, take_debt
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.throttle_state import ThrottleState
from quota.entity import UNLIMITED

FRAMES_PER_TURN = 64
NEW_HEAD_FRAMES = 8  # a request whose head has to be read takes as long as so many that are like others before them ...
NEW_HEAD_BYTES = 4_096  # ... and as one more for so many bytes of a long client-id
KNOWN_HEADS_MAX = 64
GROUPS_MET_MAX = 64
_NEVER_MS = 1 << 62
_OBSERVE = Mode.OBSERVE  # a member of an Enum is found by a call


class RequestSide(WholeRequests):
    """What a client sends on one connection."""

    __slots__ = ("_fetch_admission", "_frames_more", "_groups_met", "_head", "_known", "ahead", "frames_unanswered")

    def __init__(
        self,
        in_flight: InFlight,
        attention: Attention,
        debt: ThrottleState,
        gate: FetchAdmission,
        heads: RequestClassifier,
        reply: Callable[[int, RequestContext], bytes],
        frame_bytes_max: int,
        login: Login,
    ) -> None:
        super().__init__(in_flight, attention, debt, frame_bytes_max, heads, reply, login)
        self._fetch_admission = gate
        self._head: RequestContext | None = None  # of the last request
        self._known: dict[int, RequestContext] = {}  # of requests before it, by API version
        self._groups_met: set[Stepper] | None = None  # that a request of this connection counts for
        self.ahead: RequestsAhead | None = None  # from the first request that is sent behind another one on
        self._frames_more = 0  # that the head found last counts for, beyond one
        self.frames_unanswered = 0

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
            self._attention.needs_settle = True
            return None
        if self._tail is not None:
            if self._login.bare:
                return self._scan_tokens(bytearray(self._tail.joined() + data), now_ms, now_ns)
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
            if head.kind != FETCH:
                return False
            group = client.fetch(now_ms)
            if (
                group is None
                or client.enforcement.mode is _OBSERVE
                or group.bound != head.cap_bound
                or head.is_lowered
                or not self._fetch_admission.passes(group, head.cap_bytes, now_ms)
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
        if self.stop is Stop.LOGIN:
            self.forget_heads()  # the same request may not go on now, or means something else
        self.stop = Stop.NONE
        self.waits_behind_fetch = False
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
        limits = self._debt.limits
        in_flight_max = self._debt.in_flight_max(now_ms) if limits else IN_FLIGHT_MAX
        if self.draining:
            in_flight_max = 0
        turn_ends = self.frames + FRAMES_PER_TURN
        frames = self.frames
        requests_ahead = self.ahead
        room = -1  # for produced bytes behind others, as far as it is known
        ahead = 0  # so many more may go behind others before their time is known
        uncounted = 0  # requests like `head`
        self._body_left = 0
        self._looked_bytes = 0
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
                if head is not None and uncounted:
                    head.client.usage.requests[head.key] += uncounted
                    uncounted = 0
                head = self._find_head(data, start, at, size, index)
                if head is None:
                    break
                if frames > self.frames:  # the first one of a call is free
                    turn_ends -= self._frames_more
                room, ahead = -1, 0
                if head.may_inherit and self._inherits(head, now_ms):
                    limits, in_flight_max = True, self._debt.in_flight_max(now_ms)
            if in_flight:
                if requests_ahead is None:
                    requests_ahead = self.ahead = RequestsAhead(in_flight, self._attention, self._debt, self._classifier)
                if not ahead:
                    ahead = INT32_MAX if self.ungated else requests_ahead.number(head, size, now_ms)
                    if not ahead:
                        self._stop(data, at, len(in_flight), now_ms, read_ms)
                        break
                ahead -= 1
            if (len(in_flight) >= in_flight_max or frames >= turn_ends) and (not self.ungated or self.draining):
                self._stop(data, at, in_flight_max, now_ms, read_ms)
                break
            if limits and not self._passes_in_debt(head, size, now_ms):
                self._stop(data, at, 0, now_ms, read_ms)
                break
            if in_flight and head.kind == PRODUCE and requests_ahead is not None:
                if room < 0:
                    room = INT32_MAX if self.ungated else requests_ahead.room_bytes(head, now_ms)
                    if room < 0:
                        self._stop(data, at, len(in_flight), now_ms, read_ms)
                        break
                room -= size
                requests_ahead.bytes += size
            elif head.kind >= FETCH:
                if head.kind == FETCH:
                    group = head.client.fetch(now_ms)
                    if group is None or group.bound >= UNLIMITED or head.client.enforcement.mode is _OBSERVE:
                        self._fetch_admission.forwarded(None)
                    else:
                        if not self._admit_fetch(group, head, data, at, size, now_ms, read_ms):
                            break
                        if head.max_bytes is not None and self._fetch_admission.bytes_max < head.max_bytes:
                            data = _lowered(head, data, at, self._fetch_admission.bytes_max)
                elif head.kind == NO_ACK:
                    if self._record_unanswered(head, size, now_ms):
                        in_flight_max = 0
                    frames += 1
                    room = -1
                    self._last_unanswered = frames
                    at += size + LENGTH_BYTES
                    continue
                else:
                    data, at, noted, goes_on = self._take_whole(head, data, start, at, size, now_ms, now_ns, read_ms)
                    frames += noted
                    if not goes_on:
                        break
                    end = len(data)
                    continue
            if limits and head.kind == PRODUCE and self._debt.departed:
                in_flight.append((correlation_id, self._record_departed(head, size, now_ms), size, read_ms, now_ns))
            else:
                in_flight.append((correlation_id, head, size, read_ms, now_ns))
            uncounted += 1
            frames += 1
            at += size + LENGTH_BYTES
        else:
            self._body_left = at - end
            at = end
        self.frames = frames
        if head is not None and uncounted:
            head.client.usage.requests[head.key] += uncounted
        if requests_ahead is not None and requests_ahead.is_bounded:
            requests_ahead.note(now_ms)
        if start == 0 and at == len(data):
            return frozen(data)
        return bytes(data[start:at]) if at > start else None

    # --- tokens of a login

    def pass_token(self, frame: memoryview, now_ms: int, now_ns: int) -> bool:
        """Note a token, whole and by itself, that goes to the broker from where it lies. False: it is something else, nothing was done.

        Raises:
            ProtocolError: it cannot be read.
        """
        if self.stop or self._body_left or self._kept is not None or self.draining:
            return False
        if self._login.bare:
            if self.in_frame or self._login.bare_ends(frame[LENGTH_BYTES : LENGTH_BYTES + 2]):
                return False
            self._login.sent_bare(frame[LENGTH_BYTES:])
        else:
            if self._tail is not None or len(frame) < HEAD_BYTES or len(self._in_flight) >= IN_FLIGHT_MAX:
                return False
            size, index, correlation_id = HEAD.unpack_from(frame)
            if index >> 16 != ApiKey.SASL_AUTHENTICATE:
                return False
            head = self._classifier.resolve(frame, 0, size)
            if head is None:
                raise ProtocolError("request head is longer than its frame", reason="bad_header")
            self._login.requested(head.api, frame, head.head_bytes)
            self._debt.logs_in(now_ms)
            self.forget_heads()
            self._in_flight.append((correlation_id, head, size, now_ms, now_ns))
            head.client.usage.requests[head.key] += 1
        self.frames += 1
        if self._login.awaits:
            self._tail = None
            self._keep(b"", 0, now_ms)
            self.stop = Stop.LOGIN
        return True

    def _scan_tokens(self, tail: bytearray, now_ms: int, now_ns: int) -> bytes | None:
        """Follow tokens that travel bare, each when the one before it was answered."""
        login = self._login
        onward = bytearray()
        while len(tail) >= LENGTH_BYTES:
            (size,) = INT32.unpack_from(tail)
            if not 0 <= size <= login.frame_bytes_max:
                raise FrameSizeError(f"token of {size} bytes, limit {login.frame_bytes_max}")
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
        self._tail = UnfinishedFrame(tail, LENGTH_BYTES)
        self._attention.needs_settle = True
        return bytes(onward) or None

    def _inherits(self, head: RequestContext, now_ms: int) -> bool:
        """Before the first request of each group: take over the longest debt that a departed connection left to it."""
        client, inherits = head.client, False
        met = self._groups_met
        if met is None or len(met) >= GROUPS_MET_MAX:
            met = self._groups_met = set()
        for group in self._groups_of(head, now_ms):
            if group is None or group in met:
                continue
            met.add(group)
            if self.ungated or not client.is_enforced:
                continue
            debt = take_debt(group, now_ms)
            if debt is not None:
                self._debt.inherit(client, *debt, now_ms)
                inherits = True
        return inherits

    def _passes_in_debt(self, head: RequestContext, size: int, now_ms: int) -> bool:
        """Whether a request may go on as far as debts say: also those that were left meanwhile, where its client has closed its side."""
        debt, client = self._debt, head.client
        if debt.session_expiring(now_ms):
            return debt.passes_while_expiring(size)
        if debt.departed and not self.ungated and client.is_enforced:
            for group in self._groups_of(head, now_ms):
                found = None if group is None else longest_debt(group, now_ms)
                if found is not None and found[1] > debt.debt_until_ms:
                    debt.inherit(client, *found, now_ms)
            if not debt.in_flight_max(now_ms):
                return False
        counted = client.produce(now_ms) if head.kind in (PRODUCE, NO_ACK) else client.mutation(now_ms) if head.kind == MUTATION else None
        return debt.step_passes(counted, size, now_ms)

    def _groups_of(self, head: RequestContext, now_ms: int) -> tuple[Stepper | None, Stepper | None]:
        """The groups that a request counts for: of its bytes or mutations, and of its time."""
        client, kind = head.client, head.kind
        if kind == NO_ACK:
            return client.produce(now_ms), None
        timed_by = None if head.work is None or not head.may_inherit else client.request(now_ms)
        if kind == PRODUCE:
            return client.produce(now_ms), timed_by
        if kind == FETCH:
            return client.fetch(now_ms), timed_by
        return client.mutation(now_ms) if kind == MUTATION and not is_strict(head.api) else None, timed_by

    def _admit_fetch(
        self, group: EnforcedGroup, head: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, read_ms: int
    ) -> bool:
        """Judge a fetch before it goes to the broker; False: it waits here."""
        gate = self._fetch_admission
        if group.bound != head.cap_bound:
            head.cap_bytes = _fetch_bytes_max(group, head)
            head.is_lowered = head.max_bytes is not None and head.cap_bytes < head.max_bytes
            head.cap_bound = group.bound
        debt = self._debt
        if not debt.session_ends_ms and gate.passes_behind(group, head.cap_bytes, now_ms):
            return True
        press_ms = debt.press_ms(read_ms) if debt.session_ends_ms else _NEVER_MS
        is_pressed = debt.may_press and (now_ms >= press_ms or debt.session_expiring(now_ms))
        has_step = is_pressed or debt.took_step(group)
        if self._in_flight and not has_step and not gate.may_follow(group, now_ms):
            gate.leave_queue()
            self._stop(data, at, len(self._in_flight), now_ms, read_ms)
            return False
        if not gate.admits(group, head.cap_bytes, now_ms, read_ms, has_step=has_step):
            if gate.throttle_ms > 0:
                head.client.fetch_throttled(group, gate.throttle_ms, now_ms)
                self._note_wait(group, head, gate.throttle_ms, now_ms)
            self._keep(data, at, read_ms)
            self.stop = Stop.THROTTLE
            self.resume_at_ms = min(gate.wait_until_ms, press_ms)
            self.waits_behind_fetch = len(data) > at + size + LENGTH_BYTES
            return False
        if is_pressed:
            debt.passes_while_expiring(gate.bytes_max)
        gate.forwarded(group)
        return True

    def _note_wait(self, group: EnforcedGroup, head: RequestContext, throttle_ms: int, now_ms: int) -> None:
        """Meter that a fetch waits here: it recorded nothing, so only a trace tells of it beside the client's usage."""
        heads = self._classifier
        if heads.meter is not None:
            heads.meter.note(group.limiting, head.cap_bytes, throttle_ms, throttle_ms, now_ms, heads.number, head.index)
        if head.cell is not None:
            head.cell.throttled(throttle_ms, waits=True)

    def _record_unanswered(self, head: RequestContext, size: int, now_ms: int) -> bool:
        """Count a Produce with acks=0, which has no answer; return whether reading stops here."""
        client = head.client
        client.usage.requests[head.key] += 1
        self.frames_unanswered += 1
        head.count(1, size, 0, size)
        if head.work is not None:
            client.exempt(int(self._classifier.broker_times.estimate(head.work, size)), now_ms)
        group = client.produce(now_ms)
        if group is None:
            return False
        throttle_ms = self._record_produced(head, group, size, now_ms)
        if throttle_ms > 0 or self._debt.in_debt:
            self._debt.judge_unanswered(client, throttle_ms, group, now_ms, len(self._in_flight))
        return now_ms < self._debt.read_off_until_ms

    def _record_produced(self, head: RequestContext, group: EnforcedGroup, size: int, now_ms: int) -> int:
        """Record a Produce before it goes, and keep the books of the verdict; return the throttle time in ms."""
        client, heads, cell = head.client, self._classifier, head.cell
        throttle_ms = group.record(size, now_ms)
        if heads.meter is not None:
            waits_ms = max(0, throttle_ms)
            heads.meter.record(group, size, waits_ms, 0 if client.enforcement.only_observes else waits_ms, now_ms, heads.number, head.index)
            if waits_ms and cell is not None:
                cell.throttled(waits_ms, waits=not client.enforcement.only_observes)
        if throttle_ms > 0:
            client.produce_throttled(group, throttle_ms, now_ms)
        return throttle_ms

    def _record_departed(self, head: RequestContext, size: int, now_ms: int) -> RequestContext:
        """Record a Produce of a client that has closed its side before it goes: the next one of the group waits for the verdict at once.

        Returns:
            The head under which its answer is known, which nothing more is recorded for.
        """
        client = head.client
        if head.cell is None:
            client.usage.own_produce_bytes += size
        group = client.produce(now_ms)
        if group is not None:
            self._debt.judge_gone(client, self._record_produced(head, group, size, now_ms), group, now_ms)
        return plain_head(head)

    def _find_head(self, data: bytes | bytearray, start: int, at: int, size: int, index: int) -> RequestContext | None:
        """Recognise or read a head that is not like the last one; None: more bytes are needed, or what stands before it goes on first."""
        head = self._known.get(index)
        self._frames_more = 0
        if head is None or not data.startswith(head.prefix, at + HEAD_BYTES) or not head.size_min <= size <= self.frame_bytes_max:
            head = self._read_head(data, start, at, size)
            if head is None:
                return None
            self._frames_more = NEW_HEAD_FRAMES - 1 + head.head_bytes // NEW_HEAD_BYTES
            if head.key == ApiKey.SASL_AUTHENTICATE:
                self.forget_heads()  # from here on the same request may mean something else
        last = self._head
        if last is not None and last.index != index:
            if len(self._known) >= KNOWN_HEADS_MAX:
                self._known.clear()
            self._known[last.index] = last
        self._head = head if head.is_remembered else None
        return head

    def _read_head(self, data: bytes | bytearray, start: int, at: int, size: int) -> RequestContext | None:
        """Parse a head that is not like one before."""
        try:
            self._check_size(size)
            head = self._classifier.resolve(data, at, size)
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


def _fetch_bytes_max(group: EnforcedGroup, head: RequestContext) -> int:
    """The most that a fetch may bring: what it asks for, within what the quota's window can hold. Source: Kafka 3.8, the fetch cap."""
    asked = INT32_MAX if head.max_bytes is None else head.max_bytes
    return int(min(group.max_value_in_window(), asked))


def _lowered(head: RequestContext, data: bytes | bytearray, at: int, bytes_max: int) -> bytearray:
    """Lower max_bytes of a fetch, and min_bytes with it, as Kafka does; else it would be over quota for ever."""
    patched = data if isinstance(data, bytearray) else bytearray(data)
    INT32.pack_into(patched, at + head.max_bytes_at, bytes_max)
    if head.min_bytes > bytes_max:
        INT32.pack_into(patched, at + head.min_bytes_at, bytes_max)
    return patched


assert FETCH < NO_ACK < ANSWER
