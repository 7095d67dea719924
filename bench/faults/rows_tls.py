"""Rows D2 and E12 with TLS: clients that close while muted, and stalled handshakes beside good ones."""

import contextlib
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.faults.tools import MIB, Bench, Figure, ms, p99, proxied
from bench.harness.engine import HOST
from bench.harness.frames import produce_request
from bench.harness.scripted_broker import BrokerConnection, Request, ScriptedBroker
from tests.support.tls.certificates import Authority

CLOSE_RUNS, CLOSES_AT_ONCE = 100, 20
BOUND = 1_000_000.0
FIRST_FRAMES = 10_200_000, 12_000_000
"""Ten seconds of the quota pass at once; the rest leads to a mute of 0.2 s, or of 2 s."""
QUEUED_FRAMES = 8
QUEUED_BYTES = 4 * 1024, 200_000, 3 * MIB
ENDS = "close_notify and FIN", "a bare FIN"
CLOSE_SECONDS_MAX = 40

STALLED, GOOD_PER_SECOND, STALL_SECONDS = 500, 100, 12
WAYS_TO_STALL = "silent", "half a hello", "after the hello"
GOOD = produce_request(7, filler=200, client_id="good").whole()


class ProxyFixture:
    """A proxy with TLS, and clients that trust it."""

    def __init__(self, bench: Bench, authority: Authority) -> None:
        self.bench = bench
        self.context = ssl.create_default_context(cafile=authority.file)

    @property
    def port(self) -> int:
        return self.bench.arm.port

    def connect(self) -> ssl.SSLSocket:
        """Return a client after its handshake."""
        connection = socket.create_connection((HOST, self.port), CLOSE_SECONDS_MAX)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(connection, server_hostname=HOST)

    def hello(self) -> bytes:
        """Return a ClientHello."""
        outgoing = ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST).do_handshake()
        return outgoing.read()


@contextlib.contextmanager
def tls_fixture(folder: Path, *flags: str, produce: float = 1e12) -> Iterator[ProxyFixture]:
    """Sluice with TLS in front of a scripted broker."""
    authority = Authority(folder, "faults")
    server = authority.issue("faults-server", hosts=(HOST,))
    config = folder / "faults-tls.toml"
    config.write_text(
        f'[upstream]\nbootstrap = "{HOST}:1"\n[[listener]]\naddress = "{HOST}:1"\n'
        f'[listener.tls]\ncertificate = "{server.certificate}"\nkey = "{server.key}"\n'
    )
    with proxied(folder, ScriptedBroker(answer_and_forget), produce=produce, flags=("--config", str(config), *flags), learn=False) as bench:
        yield ProxyFixture(bench, authority)


def answer_and_forget(connection: BrokerConnection, request: Request) -> None:
    """Answer without errors, and keep only the client's name of the first frame, which is large."""
    connection.answer(request)
    connection.received.clear()
    if len(connection.requests) == 1:
        connection.requests[0] = replace(request, frame=request.frame[:64])


def ask(connection: ssl.SSLSocket, frame: bytes) -> bytes:
    """Send a request; return its answer."""
    connection.sendall(frame)
    answer = bytearray()
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4]):
        part = connection.recv(65_536)
        if not part:
            raise ConnectionResetError("closed instead of an answer")
        answer += part
    return bytes(answer)


def d2_tls_closes(folder: Path) -> list[Figure]:
    """100 runs with TLS: a muted client sends 4 KiB to 3 MiB and closes, with close_notify or a bare FIN: bytes that never arrived."""
    kinds = itertools.cycle(itertools.product(FIRST_FRAMES, QUEUED_BYTES, ENDS))
    runs = [(number, *kind) for number, kind in zip(range(CLOSE_RUNS), kinds, strict=False)]
    with tls_fixture(folder, "--enforcement", "mute", produce=BOUND) as proxy, ThreadPoolExecutor(CLOSES_AT_ONCE) as threads:
        sent = dict(threads.map(lambda run: _close_muted(proxy, *run), runs))
        end = time.monotonic() + CLOSE_SECONDS_MAX
        for connection in list(proxy.bench.broker.connections):
            connection.ended.wait(max(0.0, end - time.monotonic()))
        arrived = dict(filter(None, map(_queued_of, list(proxy.bench.broker.connections))))
    lost = sum(len(frames) - len(arrived.get(name, b"")) for name, frames in sent.items())
    wrong = sum(arrived.get(name) != frames for name, frames in sent.items())
    return [
        Figure("D2-TLS", f"bytes lost in {len(sent)} closes of muted clients", lost, 0, "bytes"),
        Figure("D2-TLS", "closes after which the broker had anything else than what was sent", wrong, 0, "runs"),
    ]


def _close_muted(proxy: ProxyFixture, number: int, first_bytes: int, queued_bytes: int, end: str) -> tuple[bytes, bytes]:
    """Run one client; return its name and what it sent while it was muted."""
    name = f"close-{number:03}"
    queued = produce_request(7, filler=queued_bytes // QUEUED_FRAMES, client_id=name, acks=0).whole() * QUEUED_FRAMES
    connection = proxy.connect()
    ask(connection, produce_request(7, filler=first_bytes, client_id=name).whole())
    connection.sendall(queued)
    if end == ENDS[0]:
        connection.settimeout(0.05)
        with contextlib.suppress(OSError):
            connection.unwrap()
    connection.close()
    return name.encode(), queued


def _queued_of(connection: BrokerConnection) -> tuple[bytes, bytes] | None:
    """Return the name of the connection's client, and the bytes after its first frame."""
    frames = [request.frame for request in connection.requests]
    if not frames:
        return None
    at = frames[0].find(b"close-")
    return (frames[0][at : at + 9], b"".join(frames[1:])) if at >= 0 else None


def e12_stalled_handshakes(folder: Path) -> list[Figure]:
    """500 handshakes that stall in three ways, beside 100 good ones per second: latency of the good ones, and when stalled ones are
    closed.
    """
    with tls_fixture(folder) as proxy, ExitStack() as stack:
        calm = p99(_good_ones(proxy, 1.0))
        stalled: list[socket.socket] = []
        began = time.monotonic()
        gone: list[float] = []
        watcher = threading.Thread(target=_watch, args=(stalled, began, gone), daemon=True)
        for number in range(STALLED):
            connection = stack.enter_context(socket.create_connection((HOST, proxy.port), 5))
            hello = proxy.hello()
            connection.sendall({"silent": b"", "half a hello": hello[:100]}.get(WAYS_TO_STALL[number % 3], hello))
            stalled.append(connection)
        watcher.start()
        beside = _good_ones(proxy, STALL_SECONDS)
        watcher.join(5)
    return [
        Figure("E12", f"p99 of a good client's connect, handshake and request, beside {STALLED} that stall", ms(p99(beside)), 300, "ms"),
        Figure("E12", "the same without them", ms(calm), None, "ms"),
        Figure("E12", "good clients that were not served", GOOD_PER_SECOND * STALL_SECONDS - len(beside), 0, "clients"),
        Figure("E12", f"the last of {len(gone)} stalled ones is gone after", max(gone, default=99.0), 11, "s"),
        Figure("E12", "stalled ones that are left", STALLED - len(gone), 0, "connections"),
    ]


def _good_ones(proxy: ProxyFixture, seconds: float) -> list[float]:
    """Run 100 handshakes per second; return how long each took until its request was answered."""
    times: list[float] = []
    began = time.monotonic()
    for number in range(int(seconds * GOOD_PER_SECOND)):
        time.sleep(max(0.0, began + number / GOOD_PER_SECOND - time.monotonic()))
        start = time.monotonic()
        with contextlib.suppress(OSError), proxy.connect() as connection:
            ask(connection, GOOD)
            times.append(time.monotonic() - start)
    return times


def _watch(stalled: list[socket.socket], began: float, gone: list[float]) -> None:
    """Record when each of them was closed."""
    left = set(stalled)
    while left and time.monotonic() - began < STALL_SECONDS + 3:
        for connection in list(left):
            connection.setblocking(False)
            try:
                over = not connection.recv(65_536)
            except BlockingIOError:
                continue
            except OSError:
                over = True
            if over:
                left.discard(connection)
                gone.append(time.monotonic() - began)
        time.sleep(0.05)


ROWS: dict[str, Callable[[Path], list[Figure]]] = {"D2-TLS": d2_tls_closes, "E12": e12_stalled_handshakes}
