"""Producers with several requests in flight, as those of Java, at several members of a fleet, on virtual time.

The connections, sessions and messages are those of the product. The clients do what the client of Java does: they send batches as long as
fewer than `IN_FLIGHT` are unanswered, and send nothing until the throttle time of a response is over. Meanwhile their queue fills. So as
soon as the window has room, the clients whose throttles end first use all of it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from bench.fleet.cells import FAIRNESS_GOAL, LONG_RUN_GOAL, WORST_GOAL
from bench.fleet.loads import connections_of, jains_index, long_run
from proxy.base.close_reason import CloseReason
from proxy.enforcement.mode import Mode
from tests.support.fleet.fleet_proxies import WAIT_MS, FleetProxies
from tests.support.frames.kafka_frames import produced, split
from tests.support.memory.memory_connection import Peer
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_of
from tests.support.memory.worker_proxies import WorkerProxies

LOADS: Final = ("even", "skewed", "moving")
BOUND: Final = 1_000_000
CONNECTIONS: Final = 16
IN_FLIGHT: Final = 5
REQUEST_BYTES: Final = 15_400
"""A batch of records of 1 kB, of at most the 16 KiB of `batch.size`."""
QUEUE: Final = 24
"""Batches that wait in a client, as in the 400 kB of the real clients of `bench.fleet.clients`."""
CLIENT_RATE: Final = 15_000_000
"""Bytes per second that a client makes records of, at most."""
BROKER_RATE: Final = 30_000_000
TAKES_MS: Final = 3
"""The broker's average time for a request, besides that of its bytes."""
STEP_MS: Final = 2
HEARD_MS: Final = 2_000
SPREAD_MS: Final = 10_000
"""Clients begin within this time."""
RECONNECT_MS: Final = 50
MOVE_MS: Final = 10_000
BURST_S: Final = 60
"""Figures leave out this time, as those of `produce`."""
PARTS: Final = 10
"""Samples of a second."""
WORST_S: Final = 10
PARTS_OF_ONE: Final = 4
"""Parts of the clients of one process, whose bytes are compared as those of the members of a fleet."""


class Case(NamedTuple):
    """What is simulated.

    Attributes:
        members: 1: one process without a fleet.
        lag_ms: D.
        load: one of `LOADS`.
        seconds: time of the load.
        seed: of the random numbers.
    """

    members: int
    lag_ms: int
    load: str
    seconds: int
    seed: int


class Figures(NamedTuple):
    """Rates in multiples of the bound, after `BURST_S`.

    Attributes:
        long_run: mean of all times, of which those at both ends have little weight.
        worst: in the 10 s with the highest rate.
        shares: what passed at each member, in bytes; of one process what passed of each of four equal parts of its clients.
    """

    long_run: float
    worst: float
    shares: Sequence[float]


class Producer:
    """A client with one connection.

    Attributes:
        part: the number of the member, or of the part of the clients of one process.
        until_ms: it sends nothing before.
    """

    def __init__(self, peer: Peer, part: int, until_ms: int) -> None:
        self.peer = peer
        self.part = part
        self.until_ms = until_ms
        self._queue = float(QUEUE)
        self._in_flight = self._sent = 0
        self._at_broker: deque[tuple[float, int]] = deque()

    def send(self, now_ms: int) -> None:
        """Read responses, and send what may be sent."""
        client = self.peer.client
        for response in split(client.take()):
            self._in_flight -= 1
            self.until_ms = max(self.until_ms, now_ms + int.from_bytes(response[-4:], "big"))
        self._queue = min(QUEUE, self._queue + CLIENT_RATE * STEP_MS / 1_000 / REQUEST_BYTES)
        while self._in_flight < IN_FLIGHT and self._queue >= 1.0 and now_ms >= self.until_ms:
            self._queue -= 1.0
            self._in_flight += 1
            self._sent += 1
            client.arrive(produce_of(REQUEST_BYTES, self._sent))

    def forwarded(self) -> list[int]:
        """Return the numbers of the requests that have reached the broker since the last call."""
        return self.peer.forwarded() if self.peer.broker.written else []

    def respond_at(self, at_ms: float, number: int) -> None:
        """Let the broker respond to a request then, after those before it."""
        self._at_broker.append((at_ms, number))

    def respond(self, now_ms: int) -> None:
        """Let the broker send the responses that are due."""
        while self._at_broker and self._at_broker[0][0] <= now_ms:
            self.peer.broker.arrive(produced(self._at_broker.popleft()[1], version=PRODUCE_VERSION))


class Simulation:
    """The clients of one simulation, and what passed."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._random = random = Random(case.seed)
        self._proxies: WorkerProxies | FleetProxies
        settings = {"produce": float(BOUND), "mode": Mode.MUTE}
        if case.members == 1:
            self._proxies = WorkerProxies(1, **settings)
        else:
            bus_ms = case.lag_ms - WAIT_MS
            self._proxies = FleetProxies(case.members, bus=lambda: bus_ms * random.uniform(0.7, 1.3), random=random, **settings)
        self._parts = PARTS_OF_ONE if case.members == 1 else case.members
        self._placements = _placements(case)
        self._producers: list[Producer] = []
        self._busy_until_ms = 0.0
        self._passed = [[0] * self._parts for _ in range(case.seconds * PARTS + 1)]

    def run(self) -> Figures:
        """Run the load; return the figures."""
        with self._proxies:
            self._proxies.wait(HEARD_MS + self._random.randrange(1_000))
            begin_ms = move_ms = self._proxies.now_ms
            within_ms = SPREAD_MS
            while (now_ms := self._proxies.now_ms) < begin_ms + self._case.seconds * 1_000:
                if now_ms >= move_ms and (not self._producers or self._case.load == "moving"):
                    self._connect_all(within_ms)
                    move_ms, within_ms = move_ms + MOVE_MS, RECONNECT_MS
                self._step(now_ms, self._passed[(now_ms - begin_ms) * PARTS // 1_000])
                self._proxies.wait(STEP_MS)
        return self._figures()

    def _connect_all(self, within_ms: int) -> None:
        """Let all clients leave, and connect where the load has them now, within a time."""
        for producer in self._producers:
            producer.peer.connection.close(CloseReason.CLIENT_CLOSED)
        self._producers = []
        proxies = self._proxies
        for member, connections in enumerate(next(self._placements)):
            for number in range(connections):
                peer, part = (
                    (proxies.connect(member), member) if isinstance(proxies, FleetProxies) else (proxies.connect(), number % self._parts)
                )
                self._producers.append(Producer(peer, part, proxies.now_ms + self._random.randrange(within_ms)))

    def _step(self, now_ms: int, passed: list[int]) -> None:
        for producer in self._producers:
            producer.send(now_ms)
            for number in producer.forwarded():
                passed[producer.part] += REQUEST_BYTES
                self._busy_until_ms = max(self._busy_until_ms, now_ms) + 1_000 * REQUEST_BYTES / BROKER_RATE
                producer.respond_at(self._busy_until_ms + TAKES_MS * self._random.uniform(0.5, 1.5), number)
            producer.respond(now_ms)

    def _figures(self) -> Figures:
        later = self._passed[BURST_S * PARTS : -1]
        sums = [sum(some) for some in later]
        span = WORST_S * PARTS
        worst = max(sum(sums[at : at + span]) for at in range(len(sums) - span + 1))
        shares = [sum(part) for part in zip(*later, strict=True)]
        return Figures(long_run(sums) * PARTS / BOUND, worst / WORST_S / BOUND, shares)


def _placements(case: Case) -> Iterator[Sequence[int]]:
    """Yield the connections of each member, and those after each move."""
    moves = range(case.members if case.load == "moving" else 1)
    return cycle([connections_of(case.load, case.members, CONNECTIONS, moves=at) for at in moves])


def simulated_pipelines(case: Case) -> Figures:
    """Return the figures of one simulation."""
    return Simulation(case).run()


def lines_of_pipelines(members: Sequence[int], lags_ms: Sequence[int], seconds: int, runs: int) -> list[str]:
    """Simulate all loads; return the table in Markdown, each fleet beside one process under the same load.

    Args:
        runs: rates are means of so many runs, and Jain's index is that of all bytes of these.
    """
    lines = [
        "| five in flight | members | D | rate / bound | over one process | worst 10 s | over one process | Jain's index | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    fleets = [(1, lags_ms[0]), *((size, lag_ms) for size in members for lag_ms in lags_ms)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        for load in LOADS:
            cases = [Case(*fleet, load, seconds, seed) for fleet in fleets for seed in range(1, runs + 1)]
            every = list(pool.map(simulated_pipelines, cases))
            one, *found = (_mean(every[at : at + runs]) for at in range(0, len(every), runs))
            lines.append(f"| {load} | 1 | | {one.long_run:.3f} | | {one.worst:.3f} | | {jains_index(one.shares):.3f} | |")
            lines += [_line(load, *fleet, figures, one) for fleet, figures in zip(fleets[1:], found, strict=True)]
            print("\n".join(lines[-len(fleets) :]), flush=True)
    return lines


def _mean(runs: Sequence[Figures]) -> Figures:
    long_runs, worsts, shares = zip(*runs, strict=True)
    return Figures(fmean(long_runs), fmean(worsts), [sum(some) for some in zip(*shares, strict=True)])


def _line(load: str, size: int, lag_ms: int, figures: Figures, one: Figures) -> str:
    over, worst = figures.long_run / one.long_run, figures.worst / one.worst
    fairness = jains_index(figures.shares)
    is_fair = load != "even" or fairness >= FAIRNESS_GOAL
    is_met = abs(over - 1) <= LONG_RUN_GOAL and worst <= WORST_GOAL and is_fair
    rates = f"{figures.long_run:.3f} | {over:.3f} | {figures.worst:.3f} | {worst:.3f} | {fairness:.3f}"
    return f"| {load} | {size} | {lag_ms} ms | {rates} | {'ok' if is_met else 'miss'} |"
