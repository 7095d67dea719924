"""Rows F6, F10 and F11: many client-ids, many idle connections, and little memory."""

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.faults.tools import MIB, Client, Figure, crowded, ms, p99, probe
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine, rss_bytes
from bench.harness.frames import api_versions_request, fetch_request, produce_request

IDS, IDS_AT_ONCE = 100_000, 50
IDLE, SPARE_FILES = 10_000, 1_024
PRESSURE_LIMIT_MIB, PRESSURE_SECONDS = 512, 20
READERS, READER_ANSWER_BYTES = 50, 55 * MIB
FLOODERS, FLOOD_FRAME_BYTES, FLOOD_BOUND = 200, 50_000, 1_000_000.0
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def f6_client_ids(folder: Path) -> list[Figure]:
    """100,000 client-ids, each used once: the memory that remains, and latency of others."""
    with crowded(folder) as bench, Client(bench.arm.port) as client:
        base, before = median(p99(probe(bench.arm.port, 100)) for _ in range(3)), bench.rss
        for first in range(0, IDS, IDS_AT_ONCE):
            names = (f"id-{number}" for number in range(first, first + IDS_AT_ONCE))
            client.send(b"".join(produce_request(7, filler=50, client_id=name).whole() for name in names))
            for _ in range(IDS_AT_ONCE):
                client.answer()
        after, beside = bench.rss, median(p99(probe(bench.arm.port, 100)) for _ in range(3))
    return [
        Figure("F6", f"memory that {IDS:,} client-ids leave", (after - before) / MIB, 64, "MiB"),
        Figure("F6", "p99 of others afterwards, without them " + f"{ms(base):.2f} ms", ms(beside), 10, "ms"),
    ]


def f10_idle(folder: Path) -> list[Figure]:
    """10,000 idle connections, or as many as the open files of this machine allow: memory, and the longest loop lag."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(IDLE, (hard - SPARE_FILES) // 2)
    ask = api_versions_request(3).whole()
    with crowded(folder) as bench, ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(Client(bench.arm.port)).ask(ask)
        time.sleep(125)  # the longest lag of the last one to two minutes is shown: connecting has ended by then
        resting = bench.rss / MIB
        lag = bench.arm.metric("kafka_sluice_loop_lag_max_seconds")
        beside = p99(probe(bench.arm.port, 300))
    return [
        Figure("F10", f"memory with {count:,} idle connections", resting, 500, "MiB"),
        Figure("F10", "longest loop lag meanwhile", ms(lag or 0.0), 50, "ms"),
        Figure("F10", "p99 of a probe beside them", ms(beside), None, "ms"),
    ]


def f11_memory_pressure(folder: Path) -> list[Figure]:
    """50 clients that read 1 KiB/s of 55 MiB each, and 200 producers far over their quota, in a control group of 512 MiB."""
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(_memory_group(PRESSURE_LIMIT_MIB * MIB))
        except OSError as error:
            return [Figure("F11", f"not measured, no control group can be made here ({error.strerror})", 0, None, "")]
        engine = Engine()
        stack.callback(engine.close)
        stub, port = engine.stub(READER_ANSWER_BYTES)
        stack.callback(stub.stop)
        arm = start_sluice(port, folder, produce=FLOOD_BOUND, flags=["--enforcement", "mute"], enter=group / "cgroup.procs")
        stack.callback(arm.stop)
        highest = _press(arm)
        died = arm.process.poll() is not None
        recovered = 0.0 if died else _recovery(arm)
        reported = arm.metric("kafka_sluice_memory_pressure") if not died else None
    return [
        Figure("F11", "killed for want of memory", float(died), 0, "times"),
        Figure("F11", f"highest resident memory, limit {PRESSURE_LIMIT_MIB} MiB", highest / MIB, PRESSURE_LIMIT_MIB, "MiB"),
        Figure("F11", "a new client is served after all have left", recovered, 5, "s"),
        Figure("F11", "memory pressure that is still reported then", reported or 0.0, 0, ""),
    ]


def _press(arm: Arm) -> int:
    """Run readers and producers for 20 s; return the highest resident memory."""
    over, highest = threading.Event(), 0
    frame = produce_request(7, filler=FLOOD_FRAME_BYTES).whole()
    with ExitStack() as stack:
        readers = [stack.enter_context(Client(arm.port, receive_buffer_bytes=4_096)) for _ in range(READERS)]
        flooders = [stack.enter_context(Client(arm.port)) for _ in range(FLOODERS)]
        for reader in readers:
            reader.send(fetch_request(11, client_id="reader").whole())
        threads = [threading.Thread(target=_flood, args=(client, frame, over), daemon=True) for client in flooders]
        for thread in threads:
            thread.start()
        end = time.monotonic() + PRESSURE_SECONDS
        while time.monotonic() < end and arm.process.poll() is None:
            for reader in readers:
                with contextlib.suppress(OSError):
                    reader.socket.recv(1_024, 0x40)  # MSG_DONTWAIT
            highest = max(highest, rss_bytes(arm.pids()))
            time.sleep(1)
        over.set()
        for client in [*readers, *flooders]:
            client.reset()
    for thread in threads:
        thread.join(5)
    return highest


def _flood(client: Client, frame: bytes, over: threading.Event) -> None:
    """Keep the socket full, without waiting for responses."""
    client.socket.settimeout(1)
    while not over.is_set():
        try:
            client.send(frame)
        except TimeoutError:
            continue
        except OSError:
            return


def _recovery(arm: Arm) -> float:
    start = time.monotonic()
    while time.monotonic() - start < 30:
        with contextlib.suppress(OSError), Client(arm.port) as client:
            client.socket.settimeout(1)
            client.ask(api_versions_request(3).whole())
            return time.monotonic() - start
        time.sleep(0.05)
    return 30.0


@contextlib.contextmanager
def _memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group with a limit, first or second version.

    Raises:
        OSError: no control group can be made here.
    """
    first, second = MEMORY_GROUPS
    root, setting = (first, "memory.limit_in_bytes") if first.is_dir() else (second, "memory.max")
    group = root / f"sluice-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / setting).write_text(str(limit_bytes))
        yield group
    finally:
        for _ in range(50):  # its last process has just ended
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


ROWS: dict[str, Callable[[Path], list[Figure]]] = {"F6": f6_client_ids, "F10": f10_idle, "F11": f11_memory_pressure}
