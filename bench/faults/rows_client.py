"""Rows D: faults of clients: truncated frames, closing while muted, slow reads or writes, garbage."""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.faults.tools import MIB, PRODUCE, Bench, Client, Figure, crowded, ms, p99, probe, proxied, with_id
from bench.harness.engine import cpu_seconds
from bench.harness.frames import API_VERSIONS, api_versions_request, fetch_request, produce_request
from bench.harness.scripted_broker import BrokerConnection, Request, ScriptedBroker

SMALL_QUOTA = 20_000.0
MUTING_QUOTA, MUTED_A_SECOND = 1_000_000.0, 11_000_000  # ten seconds of the quota pass at once, and one more has to wait
MUTE = ["--enforcement", "mute"]
SERVED_SECONDS_MAX = 30
ROUNDS = 8
PROBES = 300


def _produced(connection: BrokerConnection) -> bytes:
    return b"".join(request.frame for request in connection.requests)


def d1_cut_frames(folder: Path) -> list[Figure]:
    """A stream of three frames is cut at every byte: does the broker get exactly the whole frames before the cut?"""
    frame = produce_request(7, filler=20).whole()
    stream = b"".join(with_id(frame, number) for number in range(3))
    wrong = 0
    with proxied(folder) as bench:
        for cut in range(len(stream)):
            before = len(bench.broker.connections)
            with Client(bench.arm.port) as client:
                client.send(stream[:cut])
            deadline = time.monotonic() + 2
            while len(bench.broker.connections) == before and time.monotonic() < deadline:
                time.sleep(0.001)
            connection = bench.broker.connections[-1]
            connection.ended.wait(5)
            wrong += _produced(connection) != stream[: cut - cut % len(frame)]
    return [Figure("D1", f"of {len(stream)} cuts, wrong prefixes at the broker", wrong, 0, "cuts")]


def d2_close_while_muted(folder: Path) -> list[Figure]:
    """FIN after frames that are queued during a mute of a second: bytes that never reached the broker.

    Without acks, since an answer to a closed socket is a RST.
    """
    lost, frames = 0, 16
    with proxied(folder, produce=MUTING_QUOTA, flags=MUTE) as bench:
        for size in (4_096, 65_536, 196_608):
            frame = produce_request(7, filler=size, client_id=f"d2-{size}", acks=0).whole()
            with Client(bench.arm.port) as client:
                client.ask(produce_request(7, filler=MUTED_A_SECOND, client_id=f"d2-{size}").whole())
                client.send(frame * frames)
            connection = bench.broker.served.get(timeout=10)
            connection.ended.wait(SERVED_SECONDS_MAX)
            lost += len(frame) * frames - len(_produced(connection)) + len(connection.requests[0].frame)
    return [Figure("D2", "bytes lost when clients close in order while muted (acks=0)", lost, 0, "bytes")]


def d3_gone_while_muted(folder: Path) -> list[Figure]:
    """The client closes during a mute of 15 s: how long until its upstream connection is closed."""
    figures = []
    for name in ("FIN", "RST"):
        with proxied(folder, produce=SMALL_QUOTA, flags=MUTE) as bench:
            with Client(bench.arm.port) as client:
                client.ask(produce_request(7, filler=500_000).whole())
                time.sleep(0.2)
                if name == "RST":
                    client.reset()
                left_at = time.monotonic()
            connection = bench.broker.served.get(timeout=10)
            connection.ended.wait(SERVED_SECONDS_MAX)
            freed = (connection.ended_at or time.monotonic()) - left_at
        figures.append(Figure("D3", f"upstream freed after {name} in a mute", freed, 6, "s"))
    return figures


def d4_half_close(folder: Path) -> list[Figure]:
    """The client half-closes and waits: how long until the connection ends."""

    def script(connection: BrokerConnection, request: Request) -> None:
        time.sleep(0.2)
        connection.answer(request)

    with proxied(folder, ScriptedBroker(script)) as bench, Client(bench.arm.port) as client:
        client.send(PRODUCE)
        time.sleep(0.05)
        client.socket.shutdown(socket.SHUT_WR)
        start = time.monotonic()
        at, came = client.until_closed()
    return [
        Figure("D4", "half-closed connection is over", at - start, 5, "s"),
        Figure("D4", "its last answer is missing", float(not came), 0, "times"),
    ]


def d5_slow_readers(folder: Path) -> list[Figure]:
    """50 clients read 1 KiB/s of 55 MiB each: memory, and latency of others."""
    with crowded(folder, fetch_record_bytes=55 * MIB) as bench:
        base, before = _round_trips(bench.arm.port), bench.rss
        highest, beside = 0, []
        with ExitStack() as stack:
            readers = [stack.enter_context(Client(bench.arm.port, receive_buffer_bytes=4_096)) for _ in range(50)]
            for reader in readers:
                reader.send(fetch_request(11).whole())
            for _ in range(ROUNDS):
                for reader in readers:
                    reader.socket.recv(1_024)
                beside += probe(bench.arm.port, PROBES)
                highest = max(highest, bench.rss)
                time.sleep(0.5)
        base += _round_trips(bench.arm.port)
    return [
        Figure("D5", "memory under 50 slow readers of 55 MiB", (highest - before) / MIB, 50 * 0.6 + 16, "MiB"),
        Figure("D5", "p99 of others / p99 without them, before and after", p99(beside) / p99(base), 1.2, "x"),
    ]


def _round_trips(port: int) -> list[float]:
    """Return the round-trip times of half of the rounds, without other load."""
    return [took for _ in range(ROUNDS // 2) for took in probe(port, PROBES)]


def d6_slow_writers(folder: Path) -> list[Figure]:
    """1,000 connections that send a byte now and then: when they are closed, their memory, and latency of others."""
    with crowded(folder) as bench, ExitStack() as stack:
        base, before = _round_trips(bench.arm.port), bench.rss
        start = time.monotonic()
        writers = [stack.enter_context(Client(bench.arm.port)) for _ in range(1_000)]
        beside, worst, highest, sent, open_now = [], 0.0, 0, 0, writers
        while open_now and time.monotonic() - start < 25:
            if time.monotonic() - start > sent * 5:
                for writer in open_now:
                    _try_byte(writer, PRODUCE[sent : sent + 1])
                sent += 1
            trips = probe(bench.arm.port, PROBES)
            beside += trips
            worst = max(worst, p99(trips))
            highest = max(highest, bench.rss)
            open_now = [writer for writer in open_now if not _has_ended(writer)]
            time.sleep(0.2)
        took = time.monotonic() - start
        base += _round_trips(bench.arm.port)
    return [
        Figure("D6", "all 1,000 slow writers closed", took, 15, "s"),
        Figure("D6", "memory that they took", (highest - before) / MIB, 32, "MiB"),
        Figure("D6", "p99 of others / p99 without them, before and after", p99(beside) / p99(base), 1.2, "x"),
        Figure("D6", "worst round's p99", ms(worst), None, "ms"),
    ]


def _try_byte(writer: Client, byte: bytes) -> None:
    try:
        writer.send(byte)
    except OSError:
        return


def _has_ended(client: Client) -> bool:
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def d7_one_byte_at_a_time(folder: Path) -> list[Figure]:
    """A frame in one-byte pieces costs twice as much when it is twice as long, not four times."""
    costs = []
    with proxied(folder) as bench:
        for size in (20_000, 40_000):
            frame = produce_request(7, filler=size).whole()
            with Client(bench.arm.port) as client:
                before = cpu_seconds(bench.arm.pids())
                for byte in frame:
                    client.send(bytes([byte]))
                client.answer()
                costs.append((cpu_seconds(bench.arm.pids()) - before) / len(frame))
    return [
        Figure("D7", "CPU per byte of a frame of 40 kB / of 20 kB, one byte at a time", costs[1] / costs[0], 1.5, "x"),
        Figure("D7", "CPU per byte", costs[1] * 1e6, None, "us"),
    ]


def _closing_times(bench: Bench, payloads: list[bytes]) -> list[float]:
    times = []
    for payload in payloads:
        with Client(bench.arm.port) as client:
            start = time.monotonic()
            client.send(payload)
            times.append(client.until_closed()[0] - start)
    return times


def d9_frame_sizes(folder: Path) -> list[Figure]:
    """Impossible lengths: the connection is closed at the fourth byte, without allocation."""
    lengths = [struct.pack(">i", length) for length in (-1, 0, 100 * MIB + 1, 2**31 - 1)]
    with proxied(folder) as bench:
        _closing_times(bench, lengths * 500)
        before = bench.rss
        times = _closing_times(bench, lengths * 250)
        grown = (bench.rss - before) / MIB
    return [
        Figure("D9", "impossible length: closed, p99 of 1,000", ms(p99(times)), 50, "ms"),
        Figure("D9", "memory after 1,000 of them (after 2,000 to begin with: the collector has its plateau)", grown, 1, "MiB"),
    ]


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /topics HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12),
    b"SSH-2.0-OpenSSH_9\r\n",
    b"\xff" * 64,
    b"\x80" + bytes(63),
]


def d10_garbage(folder: Path) -> list[Figure]:
    """HTTP, TLS, PROXY headers and random bytes on a plaintext port."""
    with proxied(folder) as bench:
        times = _closing_times(bench, GARBAGE * 12)
    return [Figure("D10", "garbage: closed, p99", ms(p99(times)), 50, "ms")]


def d11_header_bombs(folder: Path) -> list[Figure]:
    """Flexible headers that claim 2^31 tags or a tag of 2^31 bytes."""
    head = struct.pack(">hhih", API_VERSIONS, 3, 1, 1) + b"x"
    bombs = [head + b"\xff\xff\xff\xff\x07", head + b"\x01\0\xff\xff\xff\xff\x07", head + b"\xff\xff\xff\xff\xff\x01"]
    framed = [struct.pack(">i", len(bomb) + 100) + bomb + bytes(100) for bomb in bombs]
    with proxied(folder) as bench:
        _closing_times(bench, framed * 700)
        before, cpu = bench.rss, cpu_seconds(bench.arm.pids())
        times = _closing_times(bench, framed * 100)
        cpu = (cpu_seconds(bench.arm.pids()) - cpu) / len(times)
        grown = (bench.rss - before) / MIB
    return [
        Figure("D11", "memory after 300 header bombs (after 2,100 to begin with)", grown, 1, "MiB"),
        Figure("D11", "CPU of one, its connection included", ms(cpu), 1, "ms"),
    ]


def d13_pipelined(folder: Path) -> list[Figure]:
    """One client sends 1,000 requests at once: the order of answers, and the latency of a probe."""
    with proxied(folder) as bench, Client(bench.arm.port) as client:
        client.send(b"".join(with_id(PRODUCE, number) for number in range(1_000)))
        beside = probe(bench.arm.port, 50)
        wrong = sum(int.from_bytes(client.answer()[4:8], "big") != number for number in range(1_000))
    return [
        Figure("D13", "of 1,000 pipelined requests, answers out of order", wrong, 0, "answers"),
        Figure("D13", "p99 of a probe beside it", ms(p99(beside)), 10, "ms"),
    ]


def d16_idle(folder: Path) -> list[Figure]:
    """An idle limit of 2 s: the difference from it."""
    config = folder / "idle.toml"
    config.write_text("[limits]\nidle_ms = 2000\n")
    with proxied(folder, flags=["--config", str(config)]) as bench, Client(bench.arm.port) as client:
        client.ask()
        start = time.monotonic()
        took = client.until_closed()[0] - start
    return [Figure("D16", "distance from an idle limit of 2 s", abs(took - 2), 1, "s")]


def d17_unknown_api(folder: Path) -> list[Figure]:
    """An unknown API key, and an ApiVersions version from the future."""
    with proxied(folder) as bench:
        times = _closing_times(bench, [_unknown_key()] * 30)
        with Client(bench.arm.port) as client:
            future = bytearray(api_versions_request(3).whole())
            future[6:8] = struct.pack(">h", 99)
            (error,) = struct.unpack_from(">h", client.ask(bytes(future)), 8)
    return [
        Figure("D17", "unknown api key: closed, p99", ms(p99(times)), None, "ms"),
        Figure("D17", "ApiVersions v99 not answered with error 35", float(error != 35), 0, "times"),
    ]


def _unknown_key() -> bytes:
    return struct.pack(">ihhih", 12, 999, 0, 1, 0) + b"\0\0"


INTER_BROKER_KEYS = [4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82]


def d18_inter_broker_apis(folder: Path) -> list[Figure]:
    """Keys that only brokers and controllers may send."""
    with proxied(folder) as bench:
        frames = [struct.pack(">ihhih", 40, key, 0, 1, 0) + bytes(30) for key in INTER_BROKER_KEYS]
        times = _closing_times(bench, frames)
        reached = len(bench.broker.served.queue)
    return [
        Figure("D18", f"{len(frames)} inter-broker keys: closed, slowest", ms(max(times)), None, "ms"),
        Figure("D18", "of them, seen by the broker", reached, 0, "requests"),
    ]


ROWS: dict[str, Callable[[Path], list[Figure]]] = {
    "D1": d1_cut_frames,
    "D2": d2_close_while_muted,
    "D3": d3_gone_while_muted,
    "D4": d4_half_close,
    "D5": d5_slow_readers,
    "D6": d6_slow_writers,
    "D7": d7_one_byte_at_a_time,
    "D9": d9_frame_sizes,
    "D10": d10_garbage,
    "D11": d11_header_bombs,
    "D13": d13_pipelined,
    "D16": d16_idle,
    "D17": d17_unknown_api,
    "D18": d18_inter_broker_apis,
}
