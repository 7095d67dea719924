"""A model of a broker that answers each request at once, with as many bytes as the client asks for, and counts what it receives."""

import struct
from collections import deque

from protocol.api_keys import ApiKey
from tests.adversary import frames
from tests.adversary.frames import FrameReader, Head, Pieces
from tests.adversary.memory_tcp import Address, Kernel, MemorySocket
from tests.adversary.virtual_loop import VirtualLoop
from tests.support.frames import sasl_frames

HEAD_BYTES = 512
READ_BYTES = 1 << 20
RECORDS_MAX = 4 << 20
LET_IN_MAX = 3
API_VERSIONS_SHARE = 0.6
"""Share of a small request's service time: the broker charges it before it builds the answer."""
_LET_IN = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_FETCH,
    }
)


class BrokerModel:
    """All connections to one broker.

    Attributes:
        produced: bytes of complete Produce requests, by client-id; largest_bytes: the size of the largest one.
        timed: requests whose time counts for a quota. Requests without an answer do not count, nor do the first few of a connection that
            authenticate its client or keep a group membership, since no throttle of others delays them.
        service_us: how long a request takes; requests of one connection wait for each other.
        accepts_logins: whether it supports SASL; session_ms: how long a session lasts, 0: as long as the connection.
        metadata_bytes: how long Metadata answers are; answer_items: how many settings or coordinators others name.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        kernel: Kernel,
        address: Address,
        *,
        service_us: int = 0,
        accepts_logins: bool = False,
        session_ms: int = 0,
        metadata_bytes: int = 0,
        answer_items: int = 0,
    ) -> None:
        self.loop = loop
        self.address = address
        self.service_us = service_us
        self.accepts_logins = accepts_logins
        self.session_ms = session_ms
        self.metadata_bytes = metadata_bytes
        self.answer_items = answer_items
        self.produced: dict[str, int] = {}
        self.timed = 0.0
        self.largest_bytes = 0
        self.connections: set[BrokerEnd] = set()
        kernel.listeners[address] = lambda sock: self.connections.add(BrokerEnd(self, sock))

    @property
    def deserted(self) -> int:
        """Return how many connections have requests in progress although the proxy has closed them."""
        return sum(end.is_deserted for end in self.connections)


class BrokerEnd:
    """The broker's end of one connection."""

    def __init__(self, broker: BrokerModel, sock: MemorySocket) -> None:
        self._broker = broker
        self._sock = sock
        self._reader = FrameReader(HEAD_BYTES)
        self._outbox: Pieces = deque()
        self._waiting: deque[tuple[Head, bytes]] = deque()
        self._is_busy = False
        self._let_in = 0
        sock.on_change = self._changed

    @property
    def is_deserted(self) -> bool:
        """Whether a request is in progress although the proxy has closed the connection."""
        return bool(self._waiting) and self._sock.peer.closed

    def _changed(self) -> None:
        sock = self._sock
        try:
            while data := sock.receive(READ_BYTES):
                for head_bytes, size in self._reader.feed(data):
                    self._met(frames.read_head(head_bytes, size), head_bytes)
            self._flush()
            if data == b"" and not self._waiting and not self._outbox:
                self._leave()
        except ConnectionResetError:
            self._leave()

    def _leave(self) -> None:
        self._waiting.clear()
        self._sock.close()
        self._broker.connections.discard(self)

    def _met(self, head: Head, data: bytes) -> None:
        broker = self._broker
        broker.largest_bytes = max(broker.largest_bytes, head.size)
        if head.key == ApiKey.PRODUCE:
            broker.produced[head.client_id] = broker.produced.get(head.client_id, 0) + head.size
        self._waiting.append((head, data))
        if not self._is_busy:
            self._next()

    def _next(self) -> None:
        """Process the oldest request, then the next one."""
        service_us = self._broker.service_us
        while self._waiting:
            if service_us and not self._is_busy:
                self._is_busy = True
                self._broker.loop.call_later(service_us / 1e6, self._served)
                return
            self._answer(*self._waiting.popleft())
            self._is_busy = False

    def _served(self) -> None:
        if not self._waiting:
            return
        self._answer(*self._waiting.popleft())
        self._is_busy = False
        try:
            self._flush()
        except ConnectionResetError:
            self._leave()
            return
        self._next()
        if not self._waiting and not self._outbox and self._sock.fin_in and not self._sock.inbox:
            self._leave()

    def _answer(self, head: Head, data: bytes) -> None:
        broker = self._broker
        if head.key == ApiKey.PRODUCE and frames.acks_of(head, data) == 0:
            return
        if head.key in _LET_IN and (self._let_in < LET_IN_MAX or broker.accepts_logins):
            self._let_in += 1
        else:
            broker.timed += API_VERSIONS_SHARE if head.key == ApiKey.API_VERSIONS else 1.0
        if head.key == ApiKey.SASL_HANDSHAKE:
            error = 0 if broker.accepts_logins else frames.ILLEGAL_SASL_STATE
            pieces: list[bytes | memoryview] = [sasl_frames.handshake_answer(head.correlation_id, error_code=error)]
        elif head.key == ApiKey.SASL_AUTHENTICATE:
            pieces = [sasl_frames.authenticate_answer(head.correlation_id, version=head.version, lifetime_ms=broker.session_ms)]
        elif head.key == ApiKey.FETCH:
            record_bytes = frames.fetch_bytes_max(head, data) - frames.fetch_overhead_bytes(head.version)
            pieces = frames.answer(head, broker.address, min(max(record_bytes, 0), RECORDS_MAX))
        else:
            pieces = frames.answer(head, broker.address, metadata_bytes=broker.metadata_bytes, items=broker.answer_items)
        self._outbox.extend(memoryview(piece) for piece in pieces)

    def _flush(self) -> None:
        while self._outbox:
            piece = self._outbox[0]
            sent = self._sock.send(piece)
            if sent < len(piece):
                self._outbox[0] = piece[sent:]
                return
            self._outbox.popleft()


def correlation_id_of(answer_head: bytes | bytearray) -> int:
    """Return the correlation id of an answer."""
    (correlation_id,) = struct.unpack_from(">i", answer_head, 4)
    return int(correlation_id)
