"""The tail of a whole Fetch or ShareFetch response, which may contain node endpoints."""

from protocol.api_keys import ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.limits import RESPONSE_HEAD_BYTES
from protocol.messages.fetch.plain import find_plain_tail, plain_records_end
from protocol.messages.fetch.walker import FetchWalker
from protocol.primitives import Buffer
from protocol.steps import Pace, Steps


def tail_is_bare(api: ApiVersion, data: Buffer, at: int, end: int) -> bool:
    """Return whether the tail of the whole response in `data[at:end]` is empty; False also when a long walk would be needed to tell.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    if data[end - 1]:
        return False
    if api.splice and api.key == ApiKey.FETCH and end - at > RESPONSE_HEAD_BYTES and data[at + RESPONSE_HEAD_BYTES] == 0:
        if plain_records_end(data, at) == end - 3 and not (data[end - 3] or data[end - 2]):  # three empty tag sections follow
            return True
        tail_at = find_plain_tail(data, at + RESPONSE_HEAD_BYTES + 1, end)
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
    """Return the offset of the tail of a whole response, in steps.

    The tail is the last tag section of a Fetch, and for a ShareFetch the node endpoints before it too.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    walker = FetchWalker(api, len(frame))
    yield from walker.feed_in_steps(frame, 0, len(frame), Pace())
    if walker.tail_at < 0:
        raise BadResponseError("the message ends before its last field")
    return walker.tail_at
