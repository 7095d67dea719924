"""A client that executes a program and counts what it receives."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from protocol.api_keys import ApiKey
from tests.adversary import frames
from tests.adversary.broker_model import correlation_id_of
from tests.adversary.frames import FrameReader, Pieces
from tests.adversary.memory_tcp import Address, Kernel, MemorySocket
from tests.adversary.program import ADDRESSES, Step
from tests.adversary.virtual_loop import VirtualLoop
from tests.support.frames import kafka_frames, sasl_frames

READ_BYTES = 1 << 20
PATIENCE_S = 30.0
NAME_BYTES_MAX = 32_000
COUNT_MAX = 16
TOKEN = b"\0u\0p"


class ClientEnd:
    """The client's end of one connection. It reads answers as they arrive, unless it is told not to read."""

    def __init__(self, sock: MemorySocket, took: Callable[[str, int], None]) -> None:
        """`took` is called with each part of a Fetch answer: the client-id and the number of bytes; 0 means that the answer is complete."""
        self.sock = sock
        self.logged_in = False
        self.in_flight: dict[int, tuple[int, str]] = {}  # API and client-id by correlation id
        self.reads = True
        self.half_closed = False
        self.gone = False
        self.unfinished: Pieces = deque()
        self.answered: asyncio.Future[None] | None = None  # futures that wait until no answer is outstanding
        self._took = took
        self._outbox: Pieces = deque()
        self._reader = FrameReader(8)
        self._number = 0
        sock.on_change = self._changed

    @property
    def owed(self) -> bool:
        """Whether an answer is outstanding."""
        return bool(self.in_flight) and not self.gone and self.reads

    def tell(self) -> None:
        """Wake all waiters."""
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(None)

    async def until_answered(self, loop: VirtualLoop) -> None:
        """Wait until no answer is outstanding, at most as long as the patience allows."""
        await loop.quiet()
        if self.owed:
            self.answered = loop.create_future()
            timer = loop.call_later(PATIENCE_S, self.tell)
            await self.answered
            timer.cancel()
            await loop.quiet()

    def request(self, key: int, client_id: str, frame: bytes) -> list[memoryview]:
        """Return a request of this connection with the next correlation id, as pieces to send."""
        self._number += 1
        self.in_flight[self._number] = (key, client_id)
        return [memoryview(piece) for piece in frames.numbered_request(frame, self._number)]

    def send(self, pieces: list[memoryview]) -> None:
        """Send bytes; those that the kernel does not accept are queued."""
        self._outbox.extend(pieces)
        self._flush()

    def _changed(self) -> None:
        self._flush()
        self._take()

    def _flush(self) -> None:
        try:
            while self._outbox:
                piece = self._outbox[0]
                sent = self.sock.send(piece)
                if sent < len(piece):
                    self._outbox[0] = piece[sent:]
                    return
                self._outbox.popleft()
        except ConnectionResetError:
            self.gone = True
            return
        if self.half_closed:
            self.sock.shut_down()

    def _take(self) -> None:
        if not self.reads or self.sock.closed:
            return
        try:
            while data := self.sock.receive(READ_BYTES):
                for head, _ in self._reader.feed(data, self._part):
                    key, _ = self.in_flight.pop(correlation_id_of(head), (-1, ""))
                    if key == ApiKey.FETCH:
                        self._took("", 0)
            if data == b"":
                self.gone = True
                self.sock.close()
        except ConnectionResetError:
            self.gone = True
            self.sock.close()
        if not self.owed:
            self.tell()

    def _part(self, head: bytearray, size: int) -> None:
        """Handle bytes of an answer that have arrived."""
        if len(head) < 8:
            return
        key, client_id = self.in_flight.get(correlation_id_of(head), (-1, ""))
        if key == ApiKey.FETCH:
            self._took(client_id, size)

    def read(self, *, reads: bool) -> None:
        """Read answers, or stop reading them."""
        self.reads = reads
        self._take()

    def half_close(self) -> None:
        """Send a FIN; answers are still read."""
        self.half_closed = True
        self._flush()

    def close(self, *, resets: bool) -> None:
        """Close the connection."""
        self.gone = True
        self._outbox.clear()
        if resets:
            self.sock.abort()
        else:
            self.sock.close()


class GreedyClient:
    """All connections of one client.

    Attributes:
        fetched: bytes of Fetch answers that were read, by client-id.
        pipelines: whether it ever sent a request while another one was unanswered.
        fetches: Fetch answers that were read to their end.
        asked_bytes_max: the largest `max_bytes` of a fetch.
        sessions: SASL sessions that began.
        opened_since_quiet: connections opened since the proxy was last idle.
    """

    def __init__(self, loop: VirtualLoop, kernel: Kernel, proxies: Sequence[Address], *, logs_in: bool) -> None:
        """`proxies` are the addresses that connections go to in turn."""
        self._loop = loop
        self._kernel = kernel
        self._proxies = proxies
        self._logs_in = logs_in
        self._slots: dict[int, ClientEnd] = {}
        self._left: list[ClientEnd] = []
        self._ports = 1_024
        self.fetched: dict[str, int] = {}
        self._names = 0
        self.pipelines = False
        self.fetches = 0
        self.asked_bytes_max = 0
        self.sessions = 0
        self.opened_since_quiet = 0

    async def take(self, step: Step) -> None:
        """Execute one step, then wait as the step says."""
        end = await self._end_of(step.slot)
        if end is not None:
            getattr(self, f"_{step.action}")(step, end)
        if step.pause != "none":
            await self._loop.quiet()
            self.opened_since_quiet = 0
        if step.pause == "wait":
            await self._loop.until_ms(self._loop.now_ms + step.wait_ms)
        elif step.pause == "answered" and end is not None:
            await end.until_answered(self._loop)

    def leave(self) -> None:
        """Close all connections."""
        for end in (*self._slots.values(), *self._left):
            end.close(resets=False)

    async def _end_of(self, slot: int) -> ClientEnd | None:
        end = self._slots.get(slot)
        if slot >= 0 and end is not None and not end.gone and not end.half_closed:
            return end
        if end is not None and not end.gone:
            self._left.append(end)  # the connection still reads answers
        self._ports += 1
        self.opened_since_quiet += 1
        address = (f"192.0.2.{1 + self._ports % ADDRESSES}", self._ports)
        try:
            sock = self._kernel.connect(address, self._proxies[self._ports % len(self._proxies)])
        except ConnectionRefusedError:
            return None
        end = self._slots[slot] = ClientEnd(sock, self._took)
        if self._logs_in:
            self._send_login(end, "app-0")
            await end.until_answered(self._loop)
        return end

    def _took(self, client_id: str, size: int) -> None:
        if not size:
            self.fetches += 1
            return
        self.fetched[client_id] = self.fetched.get(client_id, 0) + size

    def _many(self, step: Step, end: ClientEnd, key: int, frame: bytes) -> None:
        end.send(list(end.unfinished))
        end.unfinished.clear()
        for _ in range(min(step.count, COUNT_MAX)):
            self.pipelines |= bool(end.in_flight)
            end.send(end.request(key, _name(step), frame))

    def _produce(self, step: Step, end: ClientEnd, acks: int = 1) -> None:
        version = frames.PRODUCE_VERSIONS[step.version % len(frames.PRODUCE_VERSIONS)]
        self._many(step, end, ApiKey.PRODUCE, frames.produce(step.size, version, acks, _name(step)))

    def _produce_unacked(self, step: Step, end: ClientEnd) -> None:
        before = set(end.in_flight)
        self._produce(step, end, 0)
        for number in set(end.in_flight) - before:
            del end.in_flight[number]

    def _fetch(self, step: Step, end: ClientEnd) -> None:
        version = frames.FETCH_VERSIONS[step.version % len(frames.FETCH_VERSIONS)]
        self.asked_bytes_max = max(self.asked_bytes_max, step.size)
        self._many(step, end, ApiKey.FETCH, frames.fetch(step.size, version, _name(step)))

    def _ask(self, step: Step, end: ClientEnd) -> None:
        key, version = frames.ASKED[step.size % len(frames.ASKED)]
        self._many(step, end, key, frames.ask(key, version, _name(step)))

    def _begin(self, step: Step, end: ClientEnd) -> None:
        """Send a Produce request without its last bytes."""
        end.send(list(end.unfinished))
        frame = b"".join(end.request(ApiKey.PRODUCE, _name(step), frames.produce(step.size, 7, 1, _name(step))))
        at = max(4, len(frame) - 100 * step.count)
        end.send([memoryview(frame)[:at]])
        end.unfinished = deque([memoryview(frame)[at:]])

    def _begin_change(self, step: Step, end: ClientEnd) -> None:
        """Send a request that the proxy buffers whole, without its last bytes."""
        end.send(list(end.unfinished))
        frame = b"".join(end.request(ApiKey.ALTER_CLIENT_QUOTAS, "", frames.change_quotas(step.size)))
        end.send([memoryview(frame)[:-1]])
        end.unfinished = deque([memoryview(frame)[-1:]])

    def _walk(self, step: Step, end: ClientEnd) -> None:
        """Send requests with many items."""
        key, frame = frames.walked(step.version + len(frames.PRODUCE_VERSIONS) * step.client_id, step.size)
        self._many(step, end, key, frame)

    def _name(self, step: Step, end: ClientEnd) -> None:
        """Send a request with a client-id that no client has used before."""
        for _ in range(min(step.count, COUNT_MAX)):
            self._names += 1
            name = f"{self._names:08}" + "n" * min(step.size, NAME_BYTES_MAX)
            end.send(end.request(ApiKey.METADATA, name, kafka_frames.metadata(0, 9, name)))

    def _produce_as_new(self, step: Step, end: ClientEnd) -> None:
        """Send Produce requests with client-ids that no client has used before."""
        for _ in range(min(step.count, COUNT_MAX)):
            self._names += 1
            self.pipelines |= bool(end.in_flight)
            name = f"new-{self._names}"
            end.send(end.request(ApiKey.PRODUCE, name, frames.produce(step.size, 7, 1, name)))

    def _finish(self, _step: Step, end: ClientEnd) -> None:
        end.send(list(end.unfinished))
        end.unfinished.clear()

    def _half_close(self, step: Step, end: ClientEnd) -> None:
        end.half_close()
        self._left.append(end)
        self._slots.pop(step.slot)

    def _close(self, step: Step, end: ClientEnd) -> None:
        end.close(resets=False)
        self._slots.pop(step.slot)

    def _reset(self, step: Step, end: ClientEnd) -> None:
        end.close(resets=True)
        self._slots.pop(step.slot)

    def _log_in(self, step: Step, end: ClientEnd) -> None:
        self._send_login(end, _name(step))

    def _send_login(self, end: ClientEnd, client_id: str) -> None:
        self.sessions += 1
        handshake, token = sasl_frames.handshake("PLAIN", client_id=client_id), sasl_frames.authenticate(TOKEN, client_id=client_id)
        end.send(end.request(ApiKey.SASL_HANDSHAKE, client_id, handshake) + end.request(ApiKey.SASL_AUTHENTICATE, client_id, token))

    def _refuse_reading(self, _step: Step, end: ClientEnd) -> None:
        end.read(reads=False)

    def _read(self, _step: Step, end: ClientEnd) -> None:
        end.read(reads=True)


def _name(step: Step) -> str:
    return f"app-{step.client_id}"
