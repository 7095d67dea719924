"""Fetch and ShareFetch responses (1, 78): find the tail that may hold node endpoints, without keeping a record."""

from protocol.api_keys import ApiVersion
from protocol.messages.addresses import Resolve
from protocol.primitives import Buffer


def find_tail(api: ApiVersion, data: Buffer, at: int, end: int) -> int:
    """Return where the tail of the whole response in `data[at:end]` begins, counted from `at`, the first byte of its length.

    The tail is the last tag section of a Fetch, and of a ShareFetch the node endpoints before it too.

    Raises:
        BadResponseError: the frame does not read as its version says.
    """
    raise NotImplementedError


class FetchWalker:
    """Finds the tail of a response that passes through in pieces. Records are skipped by their length, never kept.

    Attributes:
        tail_at: where the tail begins, counted from the first byte of the frame's length; -1 until it is found.
    """

    __slots__ = ("tail_at",)

    def __init__(self, api: ApiVersion, frame_bytes: int) -> None:
        """`frame_bytes` is the whole frame with its length field."""
        self.tail_at = -1

    def feed(self, data: Buffer, at: int, end: int) -> int:
        """Look at the next bytes of the frame, beginning with its length field.

        Returns:
            How many of `data[at:end]` stand before the tail: they may go on. The rest is the caller's to keep until the
            frame is complete, then to give to `blank_endpoints`.

        Raises:
            BadResponseError: the frame does not read as its version says, or its tail is larger than MAX_WALK_BYTES.
        """
        raise NotImplementedError


def tail_has_endpoints(api: ApiVersion, tail: Buffer) -> bool:
    """Return whether the complete `tail` of a response holds node endpoints."""
    raise NotImplementedError


def blank_endpoints(api: ApiVersion, tail: bytes, resolve: Resolve) -> bytes:
    """Return a tail of exactly the same length with the addresses replaced.

    The length of the frame has left already, so what ours are shorter is filled by an unknown tagged field, and where ours do
    not fit, or `resolve` answers None, the entries go (clients then ask for metadata).

    Raises:
        BadResponseError: the tail does not read as its version says.
    """
    raise NotImplementedError


def read_replica_id(api: ApiVersion, data: Buffer, at: int, end: int) -> tuple[int, int | None]:
    """Return the replica id of a whole Fetch request v15+ and its offset from `at`; (-1, None) where it is absent."""
    raise NotImplementedError
