"""Rows A: the broker dies, hangs, refuses, comes back, or sends wrong answers."""

import contextlib
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from bench.faults.tools import MIB, PRODUCE, Bench, Client, Figure, ms, p99, probe, proxied, with_id
from bench.harness.arms import Arm, start_sluice
from bench.harness.frames import produce_request
from bench.harness.scripted_broker import BrokerConnection, Request, ScriptedBroker

TRIES = 60


def a1_broker_killed(folder: Path) -> list[Figure]:
    """RST before, during and after the answer: how soon the client sees it, and whether it received a byte that the broker never sent."""
    resets: list[float] = []

    def die(part: float) -> object:
        def script(connection: BrokerConnection, request: Request) -> None:
            answer = connection.good_answer(request)
            connection.socket.sendall(answer[: int(len(answer) * part)])
            time.sleep(0.005)  # let sent bytes arrive: a RST may overtake them
            resets.append(connection.reset())

        return script

    figures = []
    for name, part in (("before the answer", 0.0), ("in the middle of it", 0.5), ("after it", 1.0)):
        delays, made_up = [], 0
        with proxied(folder, ScriptedBroker(die(part))) as bench:
            for _ in range(TRIES):
                with Client(bench.arm.port) as client:
                    client.send(PRODUCE)
                    at, came = client.until_closed()
                    delays.append(at - resets[-1])
                    made_up += len(came) > int(61 * part)
        figures.append(Figure("A1", f"client sees the broker's RST {name}, p99", ms(p99(delays)), 200, "ms"))
        figures.append(Figure("A1", f"answers made up, RST {name}", made_up, 0, "answers"))
    return figures


STUCK = 8
ROUNDS = 7
HUNG_SECONDS = 7  # longer than the time after which bytes that a broker does not read are dropped


def a2_broker_hangs(folder: Path) -> list[Figure]:
    """The broker of some connections stops reading: memory per connection, round trips of others, and how soon all is released when the
    clients close.
    """
    over = threading.Event()

    def script(connection: BrokerConnection, request: Request) -> None:
        if len(request.frame) < MIB:
            connection.answer(request)
        else:
            over.wait()

    with proxied(folder, ScriptedBroker(script)) as bench:
        with Client(bench.arm.port) as client:
            client.ask(produce_request(7, filler=MIB - 1_000).whole())  # the process has its memory for large reads from here on
        base, beside, freed, held = [], [], [], []
        for _ in range(ROUNDS):
            sockets, before = _settled_files(bench), bench.rss
            base += probe(bench.arm.port, 400)
            clients = _stuck_clients(bench)
            held.append((bench.rss - before) / STUCK)
            beside += probe(bench.arm.port, 400)
            freed.append(_freed_after(bench, sockets, clients, Client.reset))
        sockets, clients = _settled_files(bench), _stuck_clients(bench, send=_until_unread)
        time.sleep(HUNG_SECONDS)
        after_fin = _freed_after(bench, sockets, clients, lambda client: client.socket.close())
        over.set()
    return [
        Figure(
            "A2", f"memory held for a connection whose broker does not read (of {STUCK}, highest of {ROUNDS})", max(held) / 1024, 512, "KiB"
        ),
        Figure("A2", "p99 of others / p99 without them", p99(beside) / p99(base), 1.2, "x"),
        Figure("A2", f"the proxy's sockets closed after {STUCK} clients left with RST, slowest", ms(max(freed)), 200, "ms"),
        Figure("A2", f"the same after FIN, when the broker had taken nothing for {HUNG_SECONDS} s", ms(after_fin), 200, "ms"),
    ]


def _stuck_clients(bench: Bench, send: Callable[[Client], None] | None = None) -> list[Client]:
    """Return clients that have sent until no more bytes are accepted."""
    clients = []
    for _ in range(STUCK):
        clients.append(Client(bench.arm.port))
        clients[-1].socket.settimeout(0.2)
        (send or _all_that_fits)(clients[-1])
    return clients


def _all_that_fits(client: Client) -> None:
    with contextlib.suppress(TimeoutError):
        client.send(produce_request(7, filler=MIB).whole() * 64)


def _until_unread(client: Client) -> None:
    """Send no more than stops the proxy's reading, so that a FIN still arrives there."""
    client.send(produce_request(7, filler=MIB).whole() + produce_request(7, filler=64 * MIB).prefix)
    while _unread_bytes(client) == 0 or _unread_bytes(client, after=0.03) == 0:
        client.send(bytes(65_536))
        time.sleep(0.001)


def _unread_bytes(client: Client, *, after: float = 0.0) -> int:
    """Return the unread bytes at the other end of a client's connection, as the kernel reports them."""
    time.sleep(after)
    ends = [f":{end[1]:04X}" for end in (client.socket.getpeername(), client.socket.getsockname())]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if [fields[1][8:], fields[2][8:]] == ends:
            return int(fields[4].split(":")[1], 16)
    return 0


def _settled_files(bench: Bench) -> int:
    time.sleep(0.3)
    return bench.open_files()


def _freed_after(bench: Bench, sockets: int, clients: list[Client], leave: Callable[[Client], None]) -> float:
    left_at = time.monotonic()
    for client in clients:
        leave(client)
    while bench.open_files() > sockets and time.monotonic() < left_at + 30:
        time.sleep(0.002)
    return time.monotonic() - left_at


def a3_connect_refused(folder: Path) -> list[Figure]:
    """The broker's port is closed: how long a client waits, how many attempts each costs."""
    with proxied(folder) as bench:
        bench.broker.stop_listening()
        waits = []
        for _ in range(20):
            start = time.monotonic()
            with Client(bench.arm.port) as client:
                client.send(PRODUCE)
                waits.append(client.until_closed()[0] - start)
    return [Figure("A3", "client closed after its broker refused", max(waits), 5.5, "s")]


def a4_broker_restarts(folder: Path) -> list[Figure]:
    """The broker ends and returns on its port."""
    with proxied(folder) as bench:
        bench.broker.stop_listening()
        for connection in bench.broker.connections:
            if not connection.ended.is_set():
                connection.reset()
        time.sleep(1)
        up_at = bench.broker.listen()
        return [Figure("A4", "first success after the broker is back", _first_success(bench.arm) - up_at, 5, "s")]


def _first_success(arm: Arm) -> float:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with Client(arm.port) as client:
                client.ask()
                return time.monotonic()
        except OSError:
            time.sleep(0.02)
    return deadline


def a5_all_down_at_start(folder: Path) -> list[Figure]:
    """No bootstrap broker answers at the start, and then one does."""
    broker = ScriptedBroker()
    arm = start_sluice(broker.port, folder, learn=False)
    try:
        time.sleep(3)
        was_ready = _is_ready(arm)
        lines = arm.log.read_bytes().count(b"\n")
        with broker:
            up_at = time.monotonic()
            while not _is_ready(arm) and time.monotonic() < up_at + 20:
                time.sleep(0.02)
            took = time.monotonic() - up_at
    finally:
        arm.stop()
    return [
        Figure("A5", "ready although no broker answers", float(was_ready), 0, "times"),
        Figure("A5", "ready after the first broker appears (down for 3 s before)", took, 1, "s"),
        Figure("A5", "log lines in 3 s without any broker, start included", lines, None, "lines"),
    ]


def _is_ready(arm: Arm) -> bool:
    try:
        with urllib.request.urlopen(f"http://{arm.admin}/readyz", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def a6_wrong_correlation_id(folder: Path) -> list[Figure]:
    """Responses without a request: how soon both sides are closed, and whether a byte of them was forwarded."""

    def script(connection: BrokerConnection, request: Request) -> None:
        connection.socket.sendall(connection.good_answer(Request(request.key, request.version, request.correlation_id + 1, request.frame)))

    return _closed_on_answer(folder, "A6", "an answer with a wrong correlation id", script)


def a7_bad_length(folder: Path) -> list[Figure]:
    """Impossible lengths of answers."""
    figures = []
    for name, length in (("below zero", -1), ("below its header's", 2)):

        def script(connection: BrokerConnection, request: Request, length: int = length) -> None:
            connection.socket.sendall(struct.pack(">ii", length, request.correlation_id))

        figures += _closed_on_answer(folder, "A7", f"an answer with a length {name}", script)

    def huge(connection: BrokerConnection, request: Request) -> None:
        connection.socket.sendall(struct.pack(">ii", 2**31 - 1, request.correlation_id) + bytes(1_000))
        time.sleep(0.05)
        connection.close()

    with proxied(folder, ScriptedBroker(huge)) as bench:
        before = bench.rss
        for _ in range(20):
            with Client(bench.arm.port) as client:
                client.send(PRODUCE)
                client.until_closed()
        grown = (bench.rss - before) / MIB
    return [*figures, Figure("A7", "memory after 20 answers that claim 2 GiB and break off", grown, 4, "MiB")]


def _closed_on_answer(folder: Path, row: str, what: str, script: object) -> list[Figure]:
    delays, passed = [], 0
    with proxied(folder, ScriptedBroker(script)) as bench:
        before = bench.rss
        for turn in range(TRIES):
            with Client(bench.arm.port) as client:
                start = time.monotonic()
                client.send(with_id(PRODUCE, turn))
                at, came = client.until_closed()
                delays.append(at - start)
                passed += bool(came)
        grown = (bench.rss - before) / MIB
    return [
        Figure(row, f"{what}: closed, p99", ms(p99(delays)), 100, "ms"),
        Figure(row, f"{what}: let through", passed, 0, "times"),
        Figure(row, f"{what}: memory after {TRIES}", grown, 4, "MiB"),
    ]


def a8_close_after_acks_0(folder: Path) -> list[Figure]:
    """The broker closes because a Produce with acks=0 failed."""
    closed: list[float] = []

    def script(connection: BrokerConnection, request: Request) -> None:
        closed.append(connection.close())

    delays = []
    with proxied(folder, ScriptedBroker(script)) as bench:
        for _ in range(TRIES):
            with Client(bench.arm.port) as client:
                client.send(produce_request(7, filler=200, acks=0).whole())
                delays.append(client.until_closed()[0] - closed[-1])
    return [Figure("A8", "client sees the close that follows acks=0, p99", ms(p99(delays)), 200, "ms")]


ROWS = {
    "A1": a1_broker_killed,
    "A2": a2_broker_hangs,
    "A3": a3_connect_refused,
    "A4": a4_broker_restarts,
    "A5": a5_all_down_at_start,
    "A6": a6_wrong_correlation_id,
    "A7": a7_bad_length,
    "A8": a8_close_after_acks_0,
}
