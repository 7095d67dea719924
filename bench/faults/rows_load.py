"""Rows F and G: floods, descriptors, a greedy client, signals."""

import heapq
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.faults.tools import MIB, Bench, Client, Figure, crowded, ms, p99, probe, proxied
from bench.harness.arms import Arm
from bench.harness.engine import cpu_seconds
from bench.harness.frames import CLIENT_ID, produce_request
from proxy.enforcement.groups.child_groups import enforced_group
from quota.entity import ANONYMOUS, ClientQuotaEntity, ClientQuotaType
from quota.manager import ClientQuotaManager
from tests.support.quota_calls import record

FLOOD_CONNECTIONS, FLOOD_SECONDS, FLOOD_BOUND, FLOOD_FRAME_BYTES = 200, 20, 1_000_000, 50_000
SERVICE_MS = 1


def f3_flood(folder: Path) -> list[Figure]:
    """200 producers far over their quota for 20 s, muted: memory must not grow, and the rate must equal the model's."""
    frame = produce_request(7, filler=FLOOD_FRAME_BYTES).whole()
    with proxied(folder, produce=FLOOD_BOUND, flags=["--enforcement", "mute"]) as bench, _flood(bench.arm, frame) as passed:
        time.sleep(5)
        early = bench.rss
        time.sleep(FLOOD_SECONDS - 5)
        late, total = bench.rss, sum(passed)
    model = _modelled_bytes(len(frame) - 4)
    return [
        Figure("F3", "memory growth from second 5 to 20 of the flood", (late - early) / MIB, 4, "MiB"),
        Figure("F3", "passed / what the exact model passes, distance from 1", abs(total / model - 1), 0.10, ""),
        Figure("F3", "passed / bound over 20 s, the burst included", total / FLOOD_BOUND / FLOOD_SECONDS, None, "x"),
    ]


@contextmanager
def _flood(arm: Arm, frame: bytes) -> Iterator[list[int]]:
    """Run producers in threads; the list grows by the bytes of each answered request."""
    passed: list[int] = []
    over = threading.Event()
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(arm.port)) for _ in range(FLOOD_CONNECTIONS)]
        threads = [threading.Thread(target=_produce, args=(client, frame, passed, over), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        try:
            yield passed
        finally:
            over.set()
            for client in clients:
                client.reset()
    for thread in threads:
        thread.join(5)


def _produce(client: Client, frame: bytes, passed: list[int], over: threading.Event) -> None:
    while not over.is_set():
        try:
            client.ask(frame)
        except (OSError, ValueError):
            return
        passed.append(len(frame) - 4)


def _modelled_bytes(request_bytes: int) -> int:
    """Return what Kafka's arithmetic lets pass: each connection waits for its throttle time, then sends the next request."""
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group)
    manager.update_quota(ClientQuotaEntity(None, CLIENT_ID), FLOOD_BOUND)
    turns = [(0, number) for number in range(FLOOD_CONNECTIONS)]
    passed = 0
    while turns and turns[0][0] < FLOOD_SECONDS * 1_000:
        now_ms, number = heapq.heappop(turns)
        wait_ms = record(manager, ANONYMOUS, CLIENT_ID, request_bytes, now_ms)
        passed += request_bytes
        heapq.heappush(turns, (now_ms + max(wait_ms, SERVICE_MS), number))
    return passed


def f4_descriptors(folder: Path) -> list[Figure]:
    """More connections than file descriptors: open ones are served, the CPU is idle, and the proxy recovers."""
    with proxied(folder, flags=[], broker=None, open_files=256) as bench, Client(bench.arm.port) as first:
        first.ask()
        crowd = _crowd(bench, 400)
        cpu, start = cpu_seconds(bench.arm.pids()), time.monotonic()
        failures = 0
        for _ in range(100):
            failures += not _is_answered(first)
            time.sleep(0.02)
        busy = (cpu_seconds(bench.arm.pids()) - cpu) / (time.monotonic() - start)
        for client in crowd:
            client.reset()
        freed_at = time.monotonic()
        recovered = _first_answer(bench.arm) - freed_at
    return [
        Figure("F4", "standing connection not served while descriptors are gone", failures, 0, "times"),
        Figure("F4", "CPU meanwhile", busy * 100, 20, "%"),
        Figure("F4", "a new client is served after descriptors are free again", recovered, 1, "s"),
    ]


def _crowd(bench: Bench, count: int) -> list[Client]:
    clients = []
    for _ in range(count):
        try:
            clients.append(Client(bench.arm.port))
        except OSError:
            break
    time.sleep(0.5)
    return clients


def _is_answered(client: Client) -> bool:
    try:
        client.ask()
    except OSError:
        return False
    return True


def _first_answer(arm: Arm) -> float:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with Client(arm.port) as client:
                client.socket.settimeout(0.5)
                client.ask()
                return time.monotonic()
        except OSError:
            time.sleep(0.02)
    return deadline


def f9_neighbour(folder: Path) -> list[Figure]:
    """Eight clients with 500 requests in flight each, and one client that sends a request now and then."""
    with crowded(folder) as bench:
        base = p99(probe(bench.arm.port, 400))
        greedy = bench.engine.load(produce_request(7, filler=200), bench.arm.port, conns=8, depth=500)
        try:
            time.sleep(0.5)
            beside = probe(bench.arm.port, 400)
        finally:
            greedy.stop()
    return [
        Figure("F9", "p99 of a probe beside 8 greedy clients", ms(p99(beside)), 10, "ms"),
        Figure("F9", "p99 of the probe alone", ms(base), None, "ms"),
    ]


def g2_sigterm_in_throttle(folder: Path) -> list[Figure]:
    """SIGTERM while answers are held: they are released and the process ends; a second SIGTERM ends it at once."""
    figures = []
    for name, signals, limit in (("one SIGTERM", 1, 10.0), ("two", 2, 2.0)):
        with proxied(folder, produce=20_000.0, flags=["--enforcement", "delay"]) as bench, Client(bench.arm.port) as client:
            client.send(produce_request(7, filler=400_000).whole())
            time.sleep(0.5)
            start = time.monotonic()
            for _ in range(signals):
                bench.arm.process.send_signal(signal.SIGTERM)
                time.sleep(0.05)
            came = client.until_closed()[1]
            code = bench.arm.process.wait(20)
            took = time.monotonic() - start
        figures.append(Figure("G2", f"{name} during a throttle: ended", took, limit, "s"))
        if signals == 1:
            figures.append(Figure("G2", "held answer lost", float(not came), 0, "answers"))
            figures.append(Figure("G2", "exit code", code, 0, ""))
    return figures


def g3_bad_reloads(folder: Path) -> list[Figure]:
    """50 invalid quota files, each with a SIGHUP, under traffic."""
    over, failures = threading.Event(), []

    def traffic(arm: Arm) -> None:
        with Client(arm.port) as client:
            while not over.is_set():
                if not _is_answered(client):
                    failures.append(1)
                    return
                time.sleep(0.005)

    with proxied(folder) as bench:
        thread = threading.Thread(target=traffic, args=(bench.arm,), daemon=True)
        thread.start()
        quotas = bench.arm.quotas
        for number in range(50):
            quotas.write_text("[[quota]]\n" + ("producer_byte_rate = -1\n", 'user = ""\nnonsense', "x = 1\n")[number % 3])
            bench.arm.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        after = probe(bench.arm.port, 50)
        over.set()
        thread.join(5)
    return [
        Figure("G3", "connections lost over 50 broken quota files", len(failures), 0, "connections"),
        Figure("G3", "p99 afterwards", ms(p99(after)), 10, "ms"),
    ]


ROWS: dict[str, Callable[[Path], list[Figure]]] = {
    "F3": f3_flood,
    "F4": f4_descriptors,
    "F9": f9_neighbour,
    "G2": g2_sigterm_in_throttle,
    "G3": g3_bad_reloads,
}
