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


class PendingRequests:
    """What was read from a client and is kept, why, and until when.

    Attributes:
        data: bytes behind a stop, from `at` on; None: there is no stop.
        read_ms: since when the oldest of these bytes is here: what waits here grows older.
        tail: a head, or a request that is looked at as a whole, that TCP cut in two.
        stop: why `data` waits; `resume_at_ms` says until when, where a time is the reason.
        in_flight_stop: so many requests in flight were enough when `stop` became IN_FLIGHT.
        waits_behind_fetch: a fetch waits for its quota, and other requests behind it.
        administered: is being answered here, and what is behind it waits.
        work: a long request, first of what is kept, is looked at in steps, by `go_on`.
        worked: what came of it; None: nothing, or it was used.
    """

    __slots__ = (
        "_attention",
        "_in_flight",
        "_throttle",
        "administered",
        "at",
        "data",
        "in_flight_stop",
        "read_ms",
        "resume_at_ms",
        "stop",
        "tail",
        "waits_behind_fetch",
        "work",
        "worked",
    )

    def __init__(self, in_flight: InFlight, attention: Attention, throttle: ThrottleState) -> None:
        self._in_flight = in_flight
        self._attention = attention
        self._throttle = throttle
        self.tail: UnfinishedFrame | None = None
        self.data: bytes | None = None
        self.at = 0
        self.read_ms = 0
        self.stop = Stop.NONE
        self.in_flight_stop = IN_FLIGHT_MAX
        self.resume_at_ms = 0
        self.waits_behind_fetch = False
        self.administered: Administered | None = None
        self.work: Steps[object] | None = None
        self.worked: object = None

    @property
    def kept_bytes(self) -> int:
        """Bytes read from the client that have not gone on."""
        return self.reserved_bytes - (0 if self.data is None else self.at)

    @property
    def keeps(self) -> bool:
        """Whether frames wait here behind a stop."""
        return self.data is not None and len(self.data) > self.at

    @property
    def reserved_bytes(self) -> int:
        """Bytes of memory that this takes: what has gone on is kept too while what stood behind it is."""
        kept = 0 if self.data is None else len(self.data)
        if self.administered is not None:
            kept += len(self.administered.frame)
        return kept + (0 if self.tail is None else self.tail.have_bytes)

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
    def is_long(self) -> bool:
        """Whether so much is here of a request that is looked at as a whole that the rest of it is read when its turn comes."""
        return self.tail is not None and self.tail.have_bytes >= PIECE_BYTES

    def drop(self) -> None:
        """Nothing that is kept goes on any more."""
        self.data = self.tail = None
        self.at = 0
        self.work = None
        self.worked = None

    def keep(self, data: bytes | bytearray, at: int, read_ms: int, stop: Stop) -> None:
        """Keep what begins at `at` of `data`, the oldest of which was read at `read_ms`, until the reason `stop` is gone."""
        if at > KEPT_BEFORE_BYTES_MAX:
            data, at = data[at:], 0
        self.data = frozen(data)
        self.at = at
        self.read_ms = read_ms
        self.stop = stop
        self._attention.needs_settle = True

    def keep_over(self, data: bytes | bytearray, at: int, in_flight_max: int, now_ms: int, read_ms: int) -> None:
        """Keep what begins at `at` until fewer than `in_flight_max` requests are in flight, or more may be; else until the next turn."""
        stop = Stop.TURN
        if in_flight_max == 0:
            stop = Stop.THROTTLE
            self.resume_at_ms = max(self._throttle.read_off_until_ms, now_ms + 1)
        elif len(self._in_flight) >= in_flight_max:
            stop = Stop.IN_FLIGHT
            self.in_flight_stop = in_flight_max
        self.keep(data, at, read_ms, stop)

    def keep_more(self, data: bytes) -> None:
        """Keep what was read although scanning has stopped."""
        assert self.data is not None
        self.data = self.data[self.at :] + data
        self.at = 0
        self._attention.needs_settle = True

    def defer(self, data: bytes | bytearray, at: int) -> None:
        """Let the frames before a broken one go on; it is met again, and then first, in the next turn."""
        self.keep(data, at, self.read_ms, Stop.TURN)

    def look_in_steps(self, work: Steps[object], data: bytes | bytearray, at: int, read_ms: int) -> None:
        """Keep the request that begins at `at` until it was looked at."""
        next(work)  # to its first pause, before which it does nothing
        self.work = work
        self.keep(data, at, read_ms, Stop.WORK)

    def go_on(self, now_ms: int) -> bool:
        """Take one step with the request that is looked at; return whether that is done.

        Raises:
            ProtocolError: it does not read as its version says, or has too much in it.
        """
        assert self.work is not None
        try:
            self.work.send(now_ms)
        except StopIteration as end:
            self.work, self.worked = None, end.value
            return True
        return False

    def take_worked(self) -> object:
        """Return what came of the request that was looked at in steps, once."""
        worked, self.worked = self.worked, None
        return worked

    def keep_head(self, data: bytes | bytearray, start: int, at: int, frame_bytes_max: int) -> None:
        """Keep a head that is not here in whole; it grows by what comes, never by what it claims.

        Raises:
            ProtocolError: no frame is as its length says, and nothing stands before it.
        """
        have = len(data) - at
        need = LENGTH_BYTES
        if have >= LENGTH_BYTES:
            (size,) = INT32.unpack_from(data, at)
            try:
                check_size(size, frame_bytes_max)
            except ProtocolError:
                if at == start:
                    raise
                self.defer(data, at)
                return
            need = HEAD_BYTES
            if have >= CLIENT_ID.size:  # wait for twice as much: a head that comes byte by byte is not read anew at each
                *_, client_id_bytes = CLIENT_ID.unpack_from(data, at)
                need = min(max(2 * have, CLIENT_ID.size + client_id_bytes), size + LENGTH_BYTES)
        self.keep_tail(data[at:], max(need, have + 1))

    def keep_tail(self, data: bytes | bytearray, need_bytes: int) -> None:
        """Keep the beginning of a frame until so many bytes of it are here."""
        self.tail = UnfinishedFrame(data, need_bytes)
        self._attention.needs_settle = True

    def join_tail(self, data: bytes) -> bytes | None:
        """Put `data` behind the beginning of a frame that is kept; return both when they are enough."""
        assert self.tail is not None
        self._attention.needs_settle = True
        if not self.tail.add(data):
            return None
        joined, self.tail = self.tail.joined(), None
        return joined


def check_size(size: int, frame_bytes_max: int) -> None:
    """Refuse a frame that no request can have.

    Raises:
        ProtocolError: it is too large, or too small for a header.
    """
    if not 0 < size <= frame_bytes_max:
        raise FrameSizeError(f"request frame of {size} bytes, limit {frame_bytes_max}")
    if size < HEAD_BYTES - LENGTH_BYTES:
        raise ProtocolError(f"frame of {size} bytes holds no request header", reason="bad_header")


def frozen(data: bytes | bytearray) -> bytes:
    """What was patched goes on as bytes of its own."""
    return bytes(data) if isinstance(data, bytearray) else data
