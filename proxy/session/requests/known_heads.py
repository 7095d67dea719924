"""The heads of the requests of one connection: one that equals an earlier head of its API version is not parsed again."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from proxy.session.request_context import RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.pending_requests import PendingRequests, check_size

NEW_HEAD_FRAMES = 8  # parsing a request's head takes as long as this many requests with a known head ...
NEW_HEAD_BYTES = 4_096  # ... and as one more for this many bytes of a long client-id
KNOWN_HEADS_MAX = 64


class KnownHeads:
    """Those of one connection.

    Attributes:
        last: the context of the last request; None: it is not known, or has to be found anew.
        frames_more: how many further requests the last head that was found counts for in a turn.
    """

    __slots__ = ("_classifier", "_known", "_pending", "frames_more", "last")

    def __init__(self, pending: PendingRequests, classifier: RequestClassifier) -> None:
        self._pending = pending
        self._classifier = classifier
        self._known: dict[int, RequestContext] = {}  # of earlier requests, by API version
        self.last: RequestContext | None = None
        self.frames_more = 0

    def forget(self) -> None:
        """Find all heads anew, because the same request may have another meaning now."""
        self.last = None
        self._known.clear()

    def find(self, data: bytes | bytearray, start: int, at: int, size: int, index: int, frame_bytes_max: int) -> RequestContext | None:
        """Find or parse the head of the request at `at`, which differs from the last one.

        Args:
            data: bytes of the client; those from `start` to `at` are forwarded.
            size: the size of the request, without its length field, in bytes.
            index: its API key and version.
            frame_bytes_max: the largest size.

        Returns:
            The context of the request; None: more bytes are needed, or those before it are forwarded first, and it is kept.

        Raises:
            ProtocolError: the head is invalid, and no frame is before it.
        """
        head = self._known.get(index)
        self.frames_more = 0
        if head is None or not data.startswith(head.prefix, at + HEAD_BYTES) or not head.size_min <= size <= frame_bytes_max:
            head = self._read(data, start, at, size, frame_bytes_max)
            if head is None:
                return None
            self.frames_more = NEW_HEAD_FRAMES - 1 + head.head_bytes // NEW_HEAD_BYTES
            if head.key == ApiKey.SASL_AUTHENTICATE:
                self.forget()  # from here on the same request may have another meaning
        last = self.last
        if last is not None and last.index != index:
            if len(self._known) >= KNOWN_HEADS_MAX:
                self._known.clear()
            self._known[last.index] = last
        self.last = head if head.is_remembered else None
        return head

    def _read(self, data: bytes | bytearray, start: int, at: int, size: int, frame_bytes_max: int) -> RequestContext | None:
        """Parse a head that is not known."""
        try:
            check_size(size, frame_bytes_max)
            head = self._classifier.resolve(data, at, size)
            if head is None and len(data) - at >= size + LENGTH_BYTES:
                raise ProtocolError("request head is longer than its frame", reason="bad_header")
        except ProtocolError:
            if at == start:
                raise
            self._pending.defer(data, at)
            return None
        if head is None:
            self._pending.keep_head(data, start, at, frame_bytes_max)
        return head
