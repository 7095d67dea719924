"""CPU of a proxied request with 10,000 live quota groups, compared with one group."""

import socket
import time
from statistics import median

from bench.cost.memory import MemoryRow
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import HOST, Engine, cpu_seconds
from bench.harness.frames import Template, produce_request

GROUPS, CONNECTIONS, RATE = 10_000, 1_000, 2_000.0
AT_ONCE = 50
RUNS = 9


def many_groups(engine: Engine, *, quick: bool) -> list[MemoryRow]:
    """Run 1,000 connections at 2,000 requests/s: all with one client-id, or one each beside 9,000 other live groups."""
    seconds = 3.0 if quick else 6.0
    costs: dict[str, list[float]] = {"one": [], "many": []}
    requests = {"one": [_request(0)], "many": [_request(number) for number in range(CONNECTIONS)]}
    stub, port = engine.stub(1)
    arms: dict[str, Arm] = {}
    try:
        for name in costs:
            arms[name] = start_sluice(port, engine.folder)
        _make_groups(arms["many"].port)
        for _ in range(RUNS):
            for name, arm in arms.items():
                costs[name].append(_cost(engine, arm, requests[name], seconds))
    finally:
        for arm in arms.values():
            arm.stop()
        stub.stop()
    ratio = median(costs["many"]) / median(costs["one"])
    return [MemoryRow(f"CPU per request with {GROUPS:,} live groups / with one (medians of {RUNS})", "sluice", ratio, "x", 1.10)]


def _request(number: int) -> Template:
    return produce_request(7, filler=200, client_id=f"bench-{number:05}")


def _make_groups(port: int) -> None:
    """Send one request of each client-id over one connection."""
    with socket.create_connection((HOST, port), 10) as connection:
        stream = connection.makefile("rb")
        for first in range(0, GROUPS, AT_ONCE):
            connection.sendall(b"".join(_request(number).whole() for number in range(first, first + AT_ONCE)))
            for _ in range(AT_ONCE):
                stream.read(int.from_bytes(stream.read(4), "big"))


def _cost(engine: Engine, arm: Arm, requests: list[Template], seconds: float) -> float:
    load = engine.load(requests, arm.port, conns=CONNECTIONS, rate=RATE)
    try:
        time.sleep(1)
        cpu, done = cpu_seconds(arm.pids()), load.done()
        time.sleep(seconds)
        return (cpu_seconds(arm.pids()) - cpu) / (load.done() - done)
    finally:
        load.stop()
