"""Fetch and ShareFetch responses (1, 78): finds the tail that may hold node endpoints, without storing records."""

from typing import NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadRequestError, BadResponseError
from protocol.layout import Field, Skip, layout_of, read_uvarint, reading, skip_fields
from protocol.limits import MAX_WALK_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.node_endpoints import blank_endpoints, tail_has_endpoints
from protocol.primitives import INT32, INT32_MAX, Buffer, IncompleteError, Reader
from protocol.steps import Pace, Steps, finished

__all__ = ["FetchWalker", "blank_endpoints", "find_tail", "find_tail_in_steps", "read_replica_id", "tail_has_endpoints", "tail_is_bare"]


class _Step(NamedTuple):
    """`fixed` bytes, then a varint: the length of the following bytes, or the number of elements that `element` describes.

    `bias` is 1 for compact lengths (n + 1), 0 for those of tag sections. A tag number is a varint whose value is ignored.
    """

    fixed: int
    bias: int
    element: tuple["_Step", ...] | None
    is_number: bool = False


_TAGGED_FIELD = (_Step(0, 0, None, is_number=True), _Step(0, 0, None))
_TAG_SECTION = _Step(0, 0, _TAGGED_FIELD)


def _steps_of(fields: tuple[Field, ...]) -> tuple[list[_Step], int]:
    """Return the steps over untagged fields of a flexible version, and the number of fixed bytes after the last of them."""
    steps: list[_Step] = []
    fixed = 0
    for field in fields:
        if field.tag is not None:
            continue
        if field.fixed_bytes is not None:
            fixed += field.fixed_bytes
        elif field.is_array:
            steps.append(_Step(fixed, 1, _struct_of(field)))
            fixed = 0
        elif field.fields:
            first, *others = _struct_of(field)
            steps += [first._replace(fixed=fixed + first.fixed), *others]
            fixed = 0
        else:
            steps.append(_Step(fixed, 1, None))
            fixed = 0
    return steps, fixed


def _struct_of(field: Field) -> tuple[_Step, ...]:
    if not field.fields:
        raise ValueError(f"{field.name}: arrays of {field.type} are not supported here")
    steps, fixed = _steps_of(field.fields)
    return (*steps, _TAG_SECTION._replace(fixed=fixed))


def _program_of(api: ApiVersion) -> tuple[_Step, ...]:
    """Compile the steps from the first byte of a frame to the tail: to the node endpoints where they are an untagged field."""
    layout = layout_of(api.key, "response", api.version)
    steps, fixed = _steps_of(layout.before("NodeEndpoints"))
    header = _TAG_SECTION._replace(fixed=RESPONSE_HEAD_BYTES)
    if fixed:
        raise ValueError(f"{api.name} v{api.version}: fixed fields before the tail")
    return (header, *steps)


_WALKED = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
_PROGRAMS = {api.index: _program_of(api) for api in API_VERSIONS.values() if api.key in _WALKED and api.flexible}


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
        self._stack: list[tuple[tuple[_Step, ...], int, int]] = []
        self._steps = _PROGRAMS[api.index]
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
            if not self._is_plain or self._skip or data != _EMPTY_TAG_SECTIONS:
                return False
            self._position = self._frame_bytes
            self._found_at = self.tail_at = self._frame_bytes - 1
            return True
        state = _IN_RECORDS.get(self._api_index)
        if state is None:
            return False
        left = _plain_records_end(data, 0) - len(data)
        if left <= 0 or len(data) + left + len(_EMPTY_TAG_SECTIONS) != self._frame_bytes:
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


_DONE: tuple[_Step, ...] = ()
_VARINTS_COUNTED = 63  # this many bytes are counted together, less one ...
_ITEMS_COUNTED = 16  # ... as this many items: a partition has about four

_TOPIC_ID_BYTES = 16
_FIXED_BEFORE_TOPICS = 4 + 2 + 4  # throttle time, error code, session id
_PARTITION_FIXED_BYTES = 4 + 2 + 8 + 8 + 8  # index, error code, high watermark, last stable offset, log start offset
_PREFERRED_REPLICA_BYTES = 4
_PLAIN_PARTITIONS_MAX = 2_048


_EMPTY_TAG_SECTIONS = bytes(3)  # behind the records of the only partition: of the partition, its topic and the response
_BODY_AT = RESPONSE_HEAD_BYTES + 1
_TOPICS_AT = _BODY_AT + _FIXED_BEFORE_TOPICS
_PARTITIONS_AT = _TOPICS_AT + 1 + _TOPIC_ID_BYTES
_ABORTED_AT = _PARTITIONS_AT + 1 + _PARTITION_FIXED_BYTES
_RECORDS_AT = _ABORTED_AT + 1 + _PREFERRED_REPLICA_BYTES
_VARINT_SHIFT_MAX = 28


def _plain_records_end(data: Buffer, at: int) -> int:
    """Return the offset behind the records of a Fetch v16+ that begins at `at`, if it has one plain partition; otherwise 0.

    For plain see `_find_plain_tail`.
    """
    try:
        if data[at + RESPONSE_HEAD_BYTES] or data[at + _TOPICS_AT] != 2 or data[at + _PARTITIONS_AT] != 2 or data[at + _ABORTED_AT] > 1:
            return 0
        at += _RECORDS_AT
        length, shift = data[at], 7
        if length >= 0x80:
            length &= 0x7F
            while shift <= _VARINT_SHIFT_MAX:
                at += 1
                byte = data[at]
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            else:
                return 0
    except IndexError:
        return 0
    return at + (length or 1)


_State = tuple[tuple[_Step, ...], int, tuple[tuple[tuple[_Step, ...], int, int], ...]]


def _in_records(api: ApiVersion) -> _State:
    """Return the state of a walker in the records of the only partition of a plain response."""
    head = bytearray(_RECORDS_AT)
    head[_TOPICS_AT] = head[_PARTITIONS_AT] = 2
    walker = FetchWalker(api, INT32_MAX)
    walker.feed(head + b"\x7f", 0, len(head) + 1)
    return walker.state


_IN_RECORDS = {api.index: _in_records(api) for api in API_VERSIONS.values() if api.key == ApiKey.FETCH and api.flexible and api.splice}


def find_tail(api: ApiVersion, data: Buffer, at: int, end: int) -> int:
    """Return the offset of the tail of the whole response in `data[at:end]`, counted from `at`, the first byte of its length.

    The tail is the last tag section of a Fetch, and for a ShareFetch the node endpoints before it too.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    if api.splice and api.key == ApiKey.FETCH and end - at > RESPONSE_HEAD_BYTES and data[at + RESPONSE_HEAD_BYTES] == 0:
        tail_at = _find_plain_tail(data, at + RESPONSE_HEAD_BYTES + 1, end)
        if tail_at >= 0:
            return tail_at - at
    walker = FetchWalker(api, end - at)
    walker.feed(data, at, end)
    if walker.tail_at < 0:
        raise BadResponseError("the message ends before its last field")
    return walker.tail_at


def tail_is_bare(api: ApiVersion, data: Buffer, at: int, end: int) -> bool:
    """Return whether the tail of the whole response in `data[at:end]` is empty; False also when a long walk would be needed to tell.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    if data[end - 1]:
        return False
    if api.splice and api.key == ApiKey.FETCH and end - at > RESPONSE_HEAD_BYTES and data[at + RESPONSE_HEAD_BYTES] == 0:
        if _plain_records_end(data, at) == end - 3 and not (data[end - 3] or data[end - 2]):  # three empty tag sections follow
            return True
        tail_at = _find_plain_tail(data, at + RESPONSE_HEAD_BYTES + 1, end)
        if tail_at >= 0:
            return tail_at == end - 1
    walker = FetchWalker(api, end - at)
    walk = walker.feed_in_steps(data, at, end, Pace())
    for _ in walk:
        return False
    if walker.tail_at < 0:
        raise BadResponseError("the message ends before its last field")
    return walker.tail_at == end - 1 - at


def find_tail_in_steps(api: ApiVersion, frame: Buffer) -> Steps[int]:
    """Do what `find_tail` does with a whole frame, in steps."""
    walker = FetchWalker(api, len(frame))
    yield from walker.feed_in_steps(frame, 0, len(frame), Pace())
    if walker.tail_at < 0:
        raise BadResponseError("the message ends before its last field")
    return walker.tail_at


def _find_plain_tail(data: Buffer, at: int, end: int) -> int:
    """Return the offset of the last tag section of a Fetch v16+ whose body begins at `at`, or -1 when it is not plain.

    Plain is nearly every response: no aborted transactions, no tagged fields below the top level, counts below 127, and not so many
    partitions that the walk would take long.
    """
    at += _FIXED_BEFORE_TOPICS
    left = _PLAIN_PARTITIONS_MAX
    try:
        topics = data[at]
        at += 1
        while topics > 1:
            topics -= 1
            at += _TOPIC_ID_BYTES
            partitions = data[at]
            if (topics | partitions) & 0x80:
                return -1
            at += 1
            left -= partitions
            if left < 0:
                return -1
            while partitions > 1:
                partitions -= 1
                at += _PARTITION_FIXED_BYTES
                if data[at] > 1:
                    return -1
                at += 1 + _PREFERRED_REPLICA_BYTES
                length = data[at]
                if length < 0x80:
                    at += length or 1
                else:
                    length, at = read_uvarint(data, at)
                    at += length - 1 if length else 0
                if data[at]:
                    return -1
                at += 1
            if data[at]:
                return -1
            at += 1
    except IndexError:
        return -1
    return at if at < end else -1


def _replica_state_walker(api: ApiVersion) -> Skip:
    layout = layout_of(api.key, "request", api.version)
    return skip_fields([field for field in layout.fields if field.tag is None], flexible=layout.flexible)


_REPLICA_STATE_SINCE = 15
_REPLICA_STATE_TAG = 1
_REPLICA_ID_BYTES = 4
_REQUEST_WALKERS = {
    api.index: _replica_state_walker(api)
    for api in API_VERSIONS.values()
    if api.key == ApiKey.FETCH and api.version >= _REPLICA_STATE_SINCE
}


def read_replica_id(api: ApiVersion, data: Buffer, body_at: int, end: int) -> tuple[int, int | None]:
    """Return the replica id of a whole Fetch request v15+ and its offset in `data`; (-1, None) where it is absent.

    Args:
        api: Fetch, v15 or newer.
        data: where the frame lies.
        body_at: offset in `data` of the first byte after the request header.
        end: offset of the end of the frame.

    Raises:
        BadRequestError: the frame does not match its version.
    """
    try:
        with reading():
            reader = Reader(data, _REQUEST_WALKERS[api.index](data, body_at), end)
            return _find_replica_state(data, reader)
    except (BadResponseError, IncompleteError) as cause:
        raise BadRequestError("the Fetch request does not match its version") from cause


def _find_replica_state(data: Buffer, reader: Reader) -> tuple[int, int | None]:
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        value_at = reader.skip(size)
        if tag == _REPLICA_STATE_TAG and size >= _REPLICA_ID_BYTES:
            replica_id: int = INT32.unpack_from(data, value_at)[0]
            return replica_id, value_at
    return -1, None
