"""CPU time of a request and its answer inside a session and its channels, without sockets: `python -m bench.micro_session [LOAD]...`.

CPU time of one pair, best of several rounds: one connection that has the caches for itself, a thousand in turn, with a request quota, with
a client in a declared group that has a parent, with sixteen requests in one piece and their answers in another, with a meter, and with a
schedule in place of the window. The cost of sockets is not included, so these are no ratios to a pump. They show the effect of a change to
the data path within seconds, on a busy machine too.
"""

import asyncio
import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from bench.harness.frames import CLIENT_ID, Template, fetch_answer, fetch_request, produce_answer, produce_request
from proxy.enforcement.groups.group_factory import PLAIN
from proxy.enforcement.paced.factory import PacedGroups
from proxy.meter.meter import Meter
from proxy.meter.usage import Place
from proxy.net.connection import Connection
from proxy.net.relay.flow import Channel
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from quota.paced_schedule import BURST_MS
from tests.support.memory.memory_connection import BROKER, MemoryTransport, ProxyFixture

ROUNDS = 15
PAIRS = 4_000
CONNECTIONS = 1_000
FREE = 1e12
"""Bytes per second, or percent: a quota that is checked on every request and never exceeded."""

LOADS: dict[str, tuple[Template, Template]] = {
    "Produce v7, 200 B": (produce_request(7, filler=200), produce_answer(7)),
    "Produce v13, 200 B": (produce_request(13, filler=200), produce_answer(13)),
    "Fetch v11, 4 KiB": (fetch_request(11), fetch_answer(11, 4_096)),
    "Fetch v18, 4 KiB": (fetch_request(18), fetch_answer(18, 4_096)),
}


class Sink(MemoryTransport):
    """A transport that drops what is written to it."""

    def __init__(self, proxy: ProxyFixture, channel: Channel) -> None:
        super().__init__(proxy.loop, channel)
        self.write: Callable[[bytes], None] = deque[bytes](maxlen=1).append  # type: ignore[method-assign]


def prepared(
    load: tuple[Template, Template],
    connections: int,
    *,
    request_time: bool = False,
    parent: bool = False,
    metered: bool = False,
    paced: bool = False,
    depth: int = 1,
) -> Callable[[int], float]:
    """Return a function that plays requests and their answers, `depth` of them in one piece, and returns the CPU microseconds of each."""
    proxy = ProxyFixture(factories=PacedGroups(BURST_MS) if paced else PLAIN)
    if metered:
        proxy.settings.meter = Meter(lambda _batch: True, lambda _group: ({"quota_type": "Produce"}, {}), 0)
    if parent:
        bounds, all_clients = {ClientQuotaType.PRODUCE: FREE, ClientQuotaType.FETCH: FREE}, Conditions(client_ids=(Pattern("*"),))
        proxy.declare(DeclaredGroup("above", None, bounds), DeclaredGroup("all", all_clients, bounds, "above"))
    proxy.set_quota(produce=FREE, fetch=FREE, request=FREE if request_time else None, client_id=CLIENT_ID)
    request, answer = load[0].whole(), bytearray(load[1].whole())
    answer[4:8] = request[8:12]  # the correlation id
    requests, answers = request * depth, bytes(answer) * depth
    pairs = [_attached(proxy, metered=metered) for _ in range(connections)]

    def play(count: int) -> float:
        turns = max(1, count // connections // depth)
        started_ns = time.process_time_ns()
        for _ in range(turns):
            for connection in pairs:
                connection.client.data_received(requests)
                connection.broker.data_received(answers)
        return (time.process_time_ns() - started_ns) / turns / connections / depth / 1_000

    return play


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect garbage now, and not again until the end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _attached(proxy: ProxyFixture, *, metered: bool) -> Connection:
    connection = proxy.connect(_one_broker).connection
    if metered:
        connection.session.set_usage_place(Place(BROKER, "default"))
    connection.broker.attach(cast("asyncio.Transport", Sink(proxy, connection.broker)))
    connection.client.attach(cast("asyncio.Transport", Sink(proxy, connection.client)))
    connection.client_made()
    return connection


def _one_broker(_node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "localhost", 9_092


def best_us(load: tuple[Template, Template], connections: int, **settings: Any) -> float:
    """Return the CPU microseconds of a request and its answer in the best of some rounds; for `settings` see `prepared`."""
    play = prepared(load, connections, **settings)
    with no_collection():
        return min(play(PAIRS) for _ in range(ROUNDS))


def main() -> None:
    """Print one line per load."""
    wanted = sys.argv[1:] or list(LOADS)
    heads = ("one connection", f"{CONNECTIONS:,} in turn", "with request time", "in a group of a group", "16 at a time", "metered", "paced")
    print(f"us for a request and its answer:{heads[0]:>25}" + "".join(f"{head:>{len(head) + 3}}" for head in heads[1:]))
    for name in wanted:
        load = LOADS[name]
        alone, crowd, timed = best_us(load, 1), best_us(load, CONNECTIONS), best_us(load, 1, request_time=True)
        grouped, deep, metered = best_us(load, 1, parent=True), best_us(load, 1, depth=16), best_us(load, 1, metered=True)
        reported = zip(heads[1:], (crowd, timed, grouped, deep, metered, best_us(load, 1, paced=True)), strict=True)
        print(f"{name:<32}{alone:>25.2f}" + "".join(f"{figure:>{len(head) + 3}.2f}" for head, figure in reported))


if __name__ == "__main__":
    main()
