"""The client's bytes that have not gone on: a frame that TCP cut in two, and what waits behind a stop."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from protocol.steps import Steps
from proxy.enforcement.mode import IN_FLIGHT_MAX
from proxy.session.administered import Administered
from proxy.session.attention import Attention
from proxy.session.in_flight import InFlight
from proxy.session.requests.unfinished_frame import PIECE_BYTES, UnfinishedFrame
from proxy.session.throttle.throttle_state import ThrottleState

HEAD = Struct(">iIi")  # size, api key and version as one number, correlation id
CLIENT_ID = Struct(">iIih")  # the same and the length of the client-id
INT32 = Struct(">i")

KEPT_BEFORE_BYTES_MAX = 16 * 1024
"""So much that has gone on is kept rather than copying what stands behind it."""


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
    WORK = 8  # next is a long request that is looked at in steps: go on when that is done


_FOR_US = frozenset({Stop.OURS, Stop.ANSWERED, Stop.WORK})


class RequestBytes:
    """What was read from a client and is kept, why, and until when.

    Attributes:
        stop: why; `resume_at_ms` says until when, where a time is the reason.
        in_flight_stop: so many requests in flight were enough when `stop` became IN_FLIGHT.
        ungated: we drain: complete frames go on whatever they cost, but no fetch.
        draining: no new request goes on; one that has begun may be completed.
        waits_behind_fetch: a fetch waits for its quota, and other requests behind it.
        frames: requests that went on.
        administered: is being answered here, and what is behind it waits.
        work: a long request, first of what is kept, is looked at in steps, by `go_on`.
    """

    __slots__ = (
        "_attention",
        "_body_left",
        "_debt",
        "_in_flight",
        "_kept",
        "_kept_at",
        "_kept_read_ms",
        "_last_unanswered",
        "_tail",
        "_worked",
        "administered",
        "draining",
        "frame_bytes_max",
        "frames",
        "in_flight_stop",
        "resume_at_ms",
        "stop",
        "ungated",
        "waits_behind_fetch",
        "work",
    )

    def __init__(self, in_flight: InFlight, attention: Attention, debt: ThrottleState, frame_bytes_max: int) -> None:
        self._in_flight = in_flight
        self._attention = attention
        self._debt = debt
        self.frame_bytes_max = frame_bytes_max
        self._body_left = 0
        self._last_unanswered = 0  # the number of the last frame that takes no slot in the FIFO
        self._tail: UnfinishedFrame | None = None  # a head, or a request that is looked at as a whole, that TCP cut in two
        self._kept: bytes | None = None  # bytes behind a stop; `_kept_at` is where they begin
        self._kept_at = 0
        self._kept_read_ms = 0  # since when its oldest byte is here: what waits here grows older
        self.stop = Stop.NONE
        self.in_flight_stop = IN_FLIGHT_MAX
        self.resume_at_ms = 0
        self.ungated = False
        self.waits_behind_fetch = False
        self.draining = False
        self.frames = 0
        self.administered: Administered | None = None
        self.work: Steps[object] | None = None
        self._worked: object = None  # what came of it; None: nothing, or it was used

    @property
    def kept_bytes(self) -> int:
        """Bytes read from the client that have not gone on."""
        kept = 0 if self._kept is None else len(self._kept) - self._kept_at
        if self.administered is not None:
            kept += len(self.administered.frame)
        return kept + (0 if self._tail is None else self._tail.have_bytes)

    @property
    def keeps(self) -> bool:
        """Whether frames wait here behind a stop."""
        return self._kept is not None and len(self._kept) > self._kept_at

    @property
    def reserved_bytes(self) -> int:
        """Bytes of memory that this takes: what has gone on is kept too while what stood behind it is."""
        kept = 0 if self._kept is None else len(self._kept)
        if self.administered is not None:
            kept += len(self.administered.frame)
        return kept + (0 if self._tail is None else self._tail.have_bytes)

    def drop(self) -> None:
        """Nothing that is kept goes on any more."""
        self._kept = self._tail = None
        self._kept_at = 0
        self.work = None
        self._worked = None

    @property
    def stops_for_us(self) -> bool:
        """Whether a request that is answered here, or looked at in steps, holds up what is behind it."""
        return self.stop in _FOR_US

    @property
    def waits_for_us(self) -> bool:
        """Whether it does still."""
        if self.stop is Stop.WORK:
            return self.work is not None
        return bool(self._in_flight) if self.stop is Stop.OURS else self.stop is Stop.ANSWERED and self.administered is not None

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun that is not here in whole."""
        return self._body_left > 0 or (self._tail is not None and self._tail.have_bytes > 0)

    @property
    def is_long(self) -> bool:
        """Whether so much is here of a request that is looked at as a whole that the rest of it is read when its turn comes."""
        return self._tail is not None and self._tail.have_bytes >= PIECE_BYTES

    @property
    def unfinished(self) -> int:
        """1 when the last one in the FIFO is not here in whole, so that it cannot be answered."""
        return int(self._body_left > 0 and self._last_unanswered != self.frames)

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
        if at > KEPT_BEFORE_BYTES_MAX:
            data, at = data[at:], 0
        self._kept = frozen(data)
        self._kept_at = at
        self._kept_read_ms = read_ms
        self._attention.needs_settle = True

    def _look_in_steps(self, work: Steps[object], data: bytes | bytearray, at: int, read_ms: int) -> None:
        """Keep the request that begins at `at` until it was looked at."""
        next(work)  # to its first pause, before which it does nothing
        self.work = work
        self._keep(data, at, read_ms)
        self.stop = Stop.WORK

    def go_on(self, now_ms: int) -> bool:
        """Take one step with the request that is looked at; return whether that is done.

        Raises:
            ProtocolError: it does not read as its version says, or has too much in it.
        """
        assert self.work is not None
        try:
            self.work.send(now_ms)
        except StopIteration as end:
            self.work, self._worked = None, end.value
            return True
        return False

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
        self._tail = UnfinishedFrame(data[at:], max(need, have + 1))
        self._attention.needs_settle = True

    def _keep_whole(self, data: bytes | bytearray, start: int, at: int, size: int, size_max: int) -> None:
        """Keep a request that is looked at as a whole until it is here."""
        if size > size_max:
            if at > start:
                self._defer(data, at)
                return
            raise FrameSizeError(f"request of {size} bytes that has to be here in whole, limit {size_max}")
        self._tail = UnfinishedFrame(data[at:], size + LENGTH_BYTES)
        self._attention.needs_settle = True

    def _join_tail(self, data: bytes) -> bytes | None:
        assert self._tail is not None
        self._attention.needs_settle = True
        if not self._tail.add(data):
            return None
        joined, self._tail = self._tail.joined(), None
        return joined


def frozen(data: bytes | bytearray) -> bytes:
    """What was patched goes on as bytes of its own."""
    return bytes(data) if isinstance(data, bytearray) else data
