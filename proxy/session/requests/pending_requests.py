"""The client's bytes that were not forwarded: a frame that TCP split, and bytes behind a stop."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from protocol.errors import FrameSizeError, ProtocolError
from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from protocol.steps import Steps
from proxy.enforcement.mode import IN_FLIGHT_MAX
from proxy.session.administered import Administered
from proxy.session.in_flight import InFlight
from proxy.session.requests.unfinished_frame import PIECE_BYTES, UnfinishedFrame
from proxy.session.settle_flag import SettleFlag
from proxy.session.throttle.throttle_state import ThrottleState

HEAD = Struct(">iIi")  # size, API key and version as one number, correlation id
CLIENT_ID = Struct(">iIih")  # the same and the length of the client-id
INT32 = Struct(">i")

KEPT_BEFORE_BYTES_MAX = 16 * 1024
"""Up to this many forwarded bytes are kept, to avoid copying the bytes behind them."""


class Stop(IntEnum):
    """Why scanning stopped before the end of the bytes."""

    NONE = 0
    TURN = 1  # limit of one callback: continue in the next one
    IN_FLIGHT = 2  # continue after a response
    THROTTLE = 3  # continue at `resume_at_ms`
    NONE_IN_FLIGHT = 4  # continue when nothing is in flight
    LOGIN = 5  # continue when the broker has answered a message of the client's login
    OWN_ANSWER = 6  # the next request is answered by Sluice: continue when nothing is in flight
    ANSWERED = 7  # continue when that request is answered
    WORK = 8  # the next is a long request that is parsed in steps: continue when that is done


_FOR_US = frozenset({Stop.OWN_ANSWER, Stop.ANSWERED, Stop.WORK})


class PendingRequests:
    """The client's bytes that are kept, why, and until when.

    Attributes:
        data: bytes behind a stop, from `at` on; None: there is no stop.
        read_ms: when the oldest of these bytes was read, since waiting counts for the age of a request.
        tail: a head, or a request that is parsed whole, of which the end is missing.
        stop: why `data` waits; `resume_at_ms` is its end when the reason is a time.
        in_flight_stop: the number of requests in flight that was the limit when `stop` became IN_FLIGHT.
        waits_behind_fetch: a fetch waits for its quota, and other requests behind it.
        administered: the request that Sluice answers, with others waiting behind it.
        work: parses a long request, the first of the kept bytes, in steps of `go_on`.
        worked: the result of `work`; None: none, or it was taken.
    """

    __slots__ = (
        "_in_flight",
        "_settle_flag",
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

    def __init__(self, in_flight: InFlight, settle_flag: SettleFlag, throttle: ThrottleState) -> None:
        self._in_flight = in_flight
        self._settle_flag = settle_flag
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
        """Number of the client's bytes that were not forwarded."""
        return self.reserved_bytes - (0 if self.data is None else self.at)

    @property
    def keeps(self) -> bool:
        """Whether frames wait behind a stop."""
        return self.data is not None and len(self.data) > self.at

    @property
    def reserved_bytes(self) -> int:
        """Bytes of memory: forwarded bytes are kept as long as those behind them."""
        kept = 0 if self.data is None else len(self.data)
        if self.administered is not None:
            kept += len(self.administered.frame)
        return kept + (0 if self.tail is None else self.tail.have_bytes)

    @property
    def stops_for_us(self) -> bool:
        """Whether a request that Sluice answers, or parses in steps, blocks those behind it."""
        return self.stop in _FOR_US

    @property
    def waits_for_us(self) -> bool:
        """Whether it still does."""
        if self.stop is Stop.WORK:
            return self.work is not None
        return bool(self._in_flight) if self.stop is Stop.OWN_ANSWER else self.stop is Stop.ANSWERED and self.administered is not None

    @property
    def is_long(self) -> bool:
        """Whether so much of a request that is parsed whole has arrived that its rest is read in turns."""
        return self.tail is not None and self.tail.have_bytes >= PIECE_BYTES

    def drop(self) -> None:
        """Drop all kept bytes."""
        self.data = self.tail = None
        self.at = 0
        self.work = None
        self.worked = None

    def keep(self, data: bytes | bytearray, at: int, read_ms: int, stop: Stop) -> None:
        """Keep `data` from `at` on, whose oldest byte was read at `read_ms`, until the reason `stop` is gone."""
        if at > KEPT_BEFORE_BYTES_MAX:
            data, at = data[at:], 0
        self.data = frozen(data)
        self.at = at
        self.read_ms = read_ms
        self.stop = stop
        self._settle_flag.needs_settle = True

    def keep_over(self, data: bytes | bytearray, at: int, in_flight_max: int, now_ms: int, read_ms: int) -> None:
        """Keep `data` from `at` on until fewer than `in_flight_max` requests are in flight or the limit rises; else until the next turn."""
        stop = Stop.TURN
        if in_flight_max == 0:
            stop = Stop.THROTTLE
            self.resume_at_ms = max(self._throttle.read_off_until_ms, now_ms + 1)
        elif len(self._in_flight) >= in_flight_max:
            stop = Stop.IN_FLIGHT
            self.in_flight_stop = in_flight_max
        self.keep(data, at, read_ms, stop)

    def keep_more(self, data: bytes) -> None:
        """Keep bytes that were read although scanning has stopped."""
        assert self.data is not None
        self.data = self.data[self.at :] + data
        self.at = 0
        self._settle_flag.needs_settle = True

    def defer(self, data: bytes | bytearray, at: int) -> None:
        """Forward the frames before an invalid one first; in the next turn the invalid one is the first."""
        self.keep(data, at, self.read_ms, Stop.TURN)

    def parse_in_steps(self, work: Steps[object], data: bytes | bytearray, at: int, read_ms: int) -> None:
        """Keep the request at `at` until it is parsed."""
        next(work)  # up to its first pause, before which it does nothing
        self.work = work
        self.keep(data, at, read_ms, Stop.WORK)

    def go_on(self, now_ms: int) -> bool:
        """Parse one step of the request; return whether that was the last.

        Raises:
            ProtocolError: the frame does not match its version, or has too many elements.
        """
        assert self.work is not None
        try:
            self.work.send(now_ms)
        except StopIteration as end:
            self.work, self.worked = None, end.value
            return True
        return False

    def take_worked(self) -> object:
        """Return the result of parsing in steps, once."""
        worked, self.worked = self.worked, None
        return worked

    def keep_head(self, data: bytes | bytearray, start: int, at: int, frame_bytes_max: int) -> None:
        """Keep an incomplete head; it grows with the bytes that arrive, never by its claimed size.

        Raises:
            ProtocolError: the length is invalid, and no frame is before it.
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
            if have >= CLIENT_ID.size:  # wait for twice as much, so that a head that arrives byte by byte is not parsed for each byte
                *_, client_id_bytes = CLIENT_ID.unpack_from(data, at)
                need = min(max(2 * have, CLIENT_ID.size + client_id_bytes), size + LENGTH_BYTES)
        self.keep_tail(data[at:], max(need, have + 1))

    def keep_tail(self, data: bytes | bytearray, need_bytes: int) -> None:
        """Keep the beginning of a frame until `need_bytes` of it have arrived."""
        self.tail = UnfinishedFrame(data, need_bytes)
        self._settle_flag.needs_settle = True

    def join_tail(self, data: bytes) -> bytes | None:
        """Append `data` to the kept beginning of a frame; return both when they are enough."""
        assert self.tail is not None
        self._settle_flag.needs_settle = True
        if not self.tail.add(data):
            return None
        joined, self.tail = self.tail.joined(), None
        return joined


def check_size(size: int, frame_bytes_max: int) -> None:
    """Refuse the size of a frame that no request can have.

    Raises:
        ProtocolError: the frame is too large, or too small for a header.
    """
    if not 0 < size <= frame_bytes_max:
        raise FrameSizeError(f"request frame of {size} bytes, limit {frame_bytes_max}")
    if size < HEAD_BYTES - LENGTH_BYTES:
        raise ProtocolError(f"frame of {size} bytes has no request header", reason="bad_header")


def frozen(data: bytes | bytearray) -> bytes:
    """Return patched bytes as an object of their own."""
    return bytes(data) if isinstance(data, bytearray) else data
