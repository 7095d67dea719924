"""Follows a Fetch or ShareFetch response that passes in pieces to its tail, without storing records."""

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.limits import MAX_WALK_BYTES
from protocol.messages.fetch.plain import EMPTY_TAG_SECTIONS, PARTITIONS_AT, RECORDS_AT, TOPICS_AT, plain_records_end
from protocol.messages.fetch.walked_fields import PROGRAMS, Step
from protocol.primitives import INT32_MAX, Buffer
from protocol.steps import Pace, Steps, finished

_DONE: tuple[Step, ...] = ()
_VARINTS_COUNTED = 63  # this many bytes are counted together, less one ...
_ITEMS_COUNTED = 16  # ... as this many items: a partition has about four


class FetchWalker:
    """Finds the tail of a response that passes through in pieces. Records are skipped by their length, never stored.

    The state between two pieces is a few counters, and the value so far of a varint that was cut.

    Attributes:
        tail_at: offset of the tail from the first byte of the frame's length; -1 until everything before it has passed.
    """

    __slots__ = (
        "_api_index",
        "_found_at",
        "_frame_bytes",
        "_is_plain",
        "_position",
        "_remaining",
        "_shift",
        "_skip",
        "_stack",
        "_step",
        "_steps",
        "_value",
        "tail_at",
    )

    def __init__(self, api: ApiVersion, frame_bytes: int) -> None:
        """`frame_bytes` is the whole frame with its length field; `api` is a flexible version of Fetch or ShareFetch."""
        self._api_index = api.index
        self._frame_bytes = frame_bytes
        self._is_plain = False  # `pass_plain` has followed the beginning
        self._position = 0
        self._stack: list[tuple[tuple[Step, ...], int, int]] = []
        self._steps = PROGRAMS[api.index]
        self._step = 0
        self._remaining = 1
        self._skip = self._steps[0].fixed
        self._value = 0
        self._shift = 0
        self._found_at = -1
        self.tail_at = -1

    def feed(self, data: Buffer, at: int, end: int) -> int:
        """Do what `feed_in_steps` does, in one call."""
        return finished(self.feed_in_steps(data, at, end, Pace()))

    def feed_in_steps(self, data: Buffer, at: int, end: int, pace: Pace) -> Steps[int]:
        """Parse the next bytes of the frame, beginning with its length field, in steps.

        Returns:
            The number of bytes of `data[at:end]` before the tail, which may be sent. The caller keeps the rest until the
            frame is complete, and passes it to `blank_endpoints` then.

        Raises:
            BadResponseError: the frame does not match its version, or its tail is larger than MAX_WALK_BYTES.
        """
        if self._found_at < 0:
            yield from self._walk(data, at, end, pace)
        position = self._position
        self._position = position + end - at
        if not 0 <= self._found_at <= self._position:
            return end - at
        self.tail_at = self._found_at
        return max(self.tail_at - position, 0)

    def pass_plain(self, data: Buffer) -> bool:
        """Follow a piece of a Fetch v16+ with one partition and no tagged fields, as nearly all long ones are, in one step.

        Such a piece is the beginning of the frame up to somewhere in the records, or all that follows the records.

        Returns:
            Whether it is one, and passes unchanged; False: nothing was done.
        """
        if self._position:
            if not self._is_plain or self._skip or data != EMPTY_TAG_SECTIONS:
                return False
            self._position = self._frame_bytes
            self._found_at = self.tail_at = self._frame_bytes - 1
            return True
        state = _IN_RECORDS.get(self._api_index)
        if state is None:
            return False
        left = plain_records_end(data, 0) - len(data)
        if left <= 0 or len(data) + left + len(EMPTY_TAG_SECTIONS) != self._frame_bytes:
            return False
        self._steps, self._step, stack = state
        self._stack = [*stack]
        self._position, self._skip = len(data), left
        self._is_plain = True
        return True

    @property
    def passing_bytes(self) -> int:
        """Number of the next bytes that need not be parsed: records, or what is left of them."""
        return self._skip if self._found_at < 0 else max(self._found_at - self._position, 0)

    def pass_on(self, size: int) -> None:
        """Go on behind bytes, at most `passing_bytes`, that are not parsed."""
        self._position += size
        if self._found_at < 0:
            self._skip -= size

    @property
    def state(self) -> "_State":
        """Where the walker is: the steps, the number of the next one, and those to return to."""
        return self._steps, self._step, tuple(self._stack)

    def _walk(self, data: Buffer, at: int, end: int, pace: Pace) -> Steps[None]:
        """Go on to the next varint repeatedly; the bytes between are skipped, in this piece or the next."""
        start = at
        varints = 0
        while True:
            varints += 1
            if varints & _VARINTS_COUNTED == 0 and pace.due(_ITEMS_COUNTED):
                yield
            at += self._skip
            if self._position + at - start >= self._frame_bytes:
                raise BadResponseError("the message goes past the end of its frame")
            if at >= end:
                self._skip = at - end
                return
            self._skip = 0
            byte = data[at]
            at += 1
            if byte < 0x80 and self._shift == 0:
                self._after_varint(byte)
            elif not self._add_to_varint(byte):
                continue
            if self._steps is _DONE:
                self._found(self._position + at - start + self._skip)
                return

    def _add_to_varint(self, byte: int) -> bool:
        """Add one byte of a longer varint; return whether it was the last."""
        self._value |= (byte & 0x7F) << self._shift
        self._shift += 7
        if byte >= 0x80:
            if self._shift > 28:
                raise BadResponseError("varint of more than 5 bytes")
            return False
        value = self._value
        if value > INT32_MAX:
            raise BadResponseError("varint of more than 31 bits")
        self._value = self._shift = 0
        self._after_varint(value)
        return True

    def _after_varint(self, value: int) -> None:
        """Enter the counted elements, or skip the bytes; then prepare for the next varint."""
        step = self._steps[self._step]
        self._step += 1
        count = value - step.bias
        if step.element is not None and count > 0:
            self._stack.append((self._steps, self._step, self._remaining))
            self._steps, self._step, self._remaining = step.element, 0, count
        elif step.element is None and not step.is_number:
            self._skip = max(count, 0)
        while self._step == len(self._steps):
            self._remaining -= 1
            if self._remaining:
                self._step = 0
            elif self._stack:
                self._steps, self._step, self._remaining = self._stack.pop()
            else:
                self._steps = _DONE
                return
        self._skip += self._steps[self._step].fixed

    def _found(self, tail_at: int) -> None:
        tail_bytes = self._frame_bytes - tail_at
        if not 0 < tail_bytes <= MAX_WALK_BYTES:
            raise BadResponseError(f"a tail of {tail_bytes} bytes")
        self._found_at = tail_at


_State = tuple[tuple[Step, ...], int, tuple[tuple[tuple[Step, ...], int, int], ...]]


def _in_records(api: ApiVersion) -> _State:
    """Return the state of a walker in the records of the only partition of a plain response."""
    head = bytearray(RECORDS_AT)
    head[TOPICS_AT] = head[PARTITIONS_AT] = 2
    walker = FetchWalker(api, INT32_MAX)
    walker.feed(head + b"\x7f", 0, len(head) + 1)
    return walker.state


_IN_RECORDS = {api.index: _in_records(api) for api in API_VERSIONS.values() if api.key == ApiKey.FETCH and api.flexible and api.splice}
