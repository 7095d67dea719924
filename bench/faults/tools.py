"""Shared by the fault rows: figures with their limits, a proxy in front of a scripted broker, and a blocking client."""

import contextlib
import socket
import statistics
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import HOST, Engine, rss_bytes
from bench.harness.frames import produce_request
from bench.harness.scripted_broker import RESET, ScriptedBroker

MIB = 1 << 20
PRODUCE = produce_request(7, filler=200).whole()


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure with its limit; without a limit it is informative."""

    row: str
    what: str
    value: float
    limit: float | None
    unit: str

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        return "ok" if self.value <= self.limit else "miss"

    def line(self) -> str:
        """Return one line for the terminal and the table."""
        limit = "" if self.limit is None else f"<= {self.limit:g} {self.unit}"
        return f"| {self.row} | {self.what} | {self.value:,.4g} {self.unit} | {limit} | {self.verdict} |"


@dataclass
class Bench:
    """A proxy in front of a scripted broker."""

    arm: Arm
    broker: ScriptedBroker

    @property
    def rss(self) -> int:
        return rss_bytes(self.arm.pids())

    def open_files(self) -> int:
        """Return the number of the proxy's file descriptors."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.arm.pids())


@contextlib.contextmanager
def proxied(
    folder: Path,
    broker: ScriptedBroker | None = None,
    *,
    produce: float | None = 1e12,
    fetch: float | None = 1e12,
    flags: Sequence[str] = (),
    open_files: int | None = None,
    learn: bool = True,
) -> Iterator[Bench]:
    """Start Sluice in front of a scripted broker (a good one by default)."""
    with broker or ScriptedBroker() as running:
        arm = start_sluice(running.port, folder, produce=produce, fetch=fetch, flags=flags, open_files=open_files, learn=learn)
        try:
            yield Bench(arm, running)
        finally:
            arm.stop()


@dataclass
class Crowd:
    """A proxy in front of the stub broker, both in child processes: for rows that measure the latency of others."""

    arm: Arm
    engine: Engine

    @property
    def rss(self) -> int:
        return rss_bytes(self.arm.pids())


@contextlib.contextmanager
def crowded(folder: Path, *, fetch_record_bytes: int = 1, flags: Sequence[str] = ()) -> Iterator[Crowd]:
    """Start Sluice in front of the stub broker."""
    engine = Engine()
    stub, port = engine.stub(fetch_record_bytes)
    try:
        arm = start_sluice(port, folder, flags=flags)
        try:
            yield Crowd(arm, engine)
        finally:
            arm.stop()
    finally:
        stub.stop()
        engine.close()


class Client:
    """One blocking connection. A context manager."""

    def __init__(self, port: int, *, receive_buffer_bytes: int | None = None, connected: socket.socket | None = None) -> None:
        if connected is not None:
            self.socket = connected
            self.socket.settimeout(100)
            return
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(40)
        self.socket.connect((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()

    def answer(self) -> bytes:
        """Return the next answer, length included.

        Raises:
            OSError: the connection ended before the answer was complete.
        """
        head = self._exactly(4)
        return head + self._exactly(int.from_bytes(head, "big"))

    def ask(self, frame: bytes = PRODUCE) -> bytes:
        """Send a request; return its answer."""
        self.send(frame)
        return self.answer()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                raise ConnectionResetError("the connection ended")
            parts += part
        return bytes(parts)

    def until_closed(self) -> tuple[float, bytes]:
        """Return when the connection ended, and the bytes before that."""
        came = bytearray()
        while True:
            try:
                part = self.socket.recv(65_536)
            except ConnectionError:
                part = b""
            if not part:
                return time.monotonic(), bytes(came)
            came += part


def with_id(frame: bytes, correlation_id: int) -> bytes:
    """Return the request with another correlation id."""
    return frame[:8] + struct.pack(">i", correlation_id) + frame[12:]


def ms(seconds: float) -> float:
    return seconds * 1_000


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]


def probe(port: int, count: int = 300) -> list[float]:
    """Measure round trips of a well-behaved client, in seconds."""
    times = []
    with Client(port) as client:
        for _ in range(count):
            start = time.monotonic()
            client.ask()
            times.append(time.monotonic() - start)
            time.sleep(0.001)
    return times
