"""Consumers far over their quota at several members of a fleet, on virtual time: the connections, sessions and messages of the product.

The broker takes its time for each fetch, and only its answer has the size. So what is in flight elsewhere is known late, and what it
returns later still.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import cycle, pairwise, product
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from bench.cost.intervals import mean_interval
from bench.fleet.cells import LONG_RUN_GOAL, WORST_GOAL
from bench.fleet.loads import connections_of, jains_index, long_run
from proxy.enforcement.mode import Mode
from tests.support.fleet.fleet_proxies import WAIT_MS, FleetProxies
from tests.support.memory.fetch_load import Fetcher, FetchLoad, worst_bytes
from tests.support.memory.worker_proxies import WorkerProxies

BOUND: Final = 1_000_000
CONNECTIONS: Final = 16
ASKS_BYTES: Final = 200_000
STEP_MS: Final = 2
BURST_S: Final = 15
"""Figures leave out the burst of the first window."""
PARTS: Final = 10
"""Samples of a second."""
WORST_S: Final = 10
MOVE_S: Final = 10
HEARD_MS: Final = 2_000
"""Time before the load, in which members hear of each other."""
BELOW: Final = "below the bound"
RUNS_BELOW: Final = 12
"""Runs of the load below the bound: how many fetches wait differs by a third from run to run."""
PACED: Final = 10
BELOW_RATE: Final = 0.95 * BOUND
TRICKLE_MS: Final = 4_000
LOADS: Final = ("even", "skewed", "moving", BELOW)


class Case(NamedTuple):
    """What is simulated.

    Attributes:
        members: 1: one process without a fleet.
        lag_ms: D while no fetch passes.
        load: one of `LOADS`.
        takes_ms: the broker's average time for a fetch.
        late_ms: how much longer a message takes through the bus while fetches pass.
        seconds: time of the load.
        clients_of: one process has the clients of so many members; 0: of as many as there are.
    """

    members: int
    lag_ms: int
    load: str
    takes_ms: int
    late_ms: int
    seconds: int
    clients_of: int = 0


class Figures(NamedTuple):
    """Rates in multiples of the bound, after the burst.

    Attributes:
        long_run: mean of all times, of which those at both ends have little weight.
        worst: in the 10 s with the highest rate.
        fairness: Jain's index of the bytes of the members.
        waited: part of the fetches that waited at a member.
    """

    long_run: float
    worst: float
    fairness: float
    waited: float


class Broker:
    """A broker, and the bus in a topic of it.

    Args:
        case: a message takes 0.7 to 1.3 times the average of the bus, and a fetch 0.5 to 1.5 times that of the broker.
    """

    def __init__(self, case: Case, random: Random) -> None:
        self._case, self._random = case, random
        self._busy_until_ms = 0
        self.now_ms: Callable[[], int] = lambda: 0

    def fetch(self, max_bytes: int) -> tuple[int, int]:
        """Return the time in ms and the size of the answer to a fetch of so many bytes: half of them to all."""
        takes_ms = max(1, round(self._case.takes_ms * self._random.uniform(0.5, 1.5)))
        self._busy_until_ms = max(self._busy_until_ms, self.now_ms() + takes_ms)
        return takes_ms, round(max_bytes * self._random.uniform(0.5, 1.0))

    def bus(self) -> float:
        """Return the time of a message through the bus, in ms."""
        late_ms = self._case.late_ms if self.now_ms() < self._busy_until_ms else 0
        return (self._case.lag_ms - WAIT_MS + late_ms) * self._random.uniform(0.7, 1.3)


def simulated_fetches(case: Case, seed: int) -> Figures:
    """Return the figures of one simulation."""
    with simulation_of(case, seed) as simulation:
        return simulation.run()


@contextmanager
def simulation_of(case: Case, seed: int) -> Iterator[Simulation]:
    """Yield a simulation whose members have heard of each other."""
    random = Random(seed)
    broker = Broker(case, random)
    proxies: WorkerProxies | FleetProxies
    if case.members == 1:
        proxies = WorkerProxies(1, fetch=float(BOUND), mode=Mode.MUTE)
    else:
        proxies = FleetProxies(case.members, bus=broker.bus, random=random, fetch=float(BOUND), mode=Mode.MUTE)
    broker.now_ms = lambda: proxies.now_ms
    with proxies:
        proxies.wait(HEARD_MS)
        yield Simulation(proxies, case, broker)


class Simulation:
    """The consumers of one simulation, and what passed at each member.

    Attributes:
        load: runs the consumers, and counts what passes.
    """

    def __init__(self, proxies: WorkerProxies | FleetProxies, case: Case, broker: Broker) -> None:
        self._proxies, self._case = proxies, case
        self._placements = _placements(case)
        self.load = FetchLoad(proxies, 0, ASKS_BYTES, step_ms=STEP_MS, broker=broker.fetch)
        self._connected: list[tuple[int, Fetcher]] = []

    def run(self) -> Figures:
        """Run the load; return the figures."""
        passed, begun = [0], [0] * self._case.members
        for second in range(self._case.seconds):
            if second == 0 or (self._case.load == "moving" and second % MOVE_S == 0):
                self.leave_all()
                self.connect_all()
            for _ in range(PARTS):
                self.load.run(1 / PARTS)
                passed.append(self.load.passed_bytes)
            if second == BURST_S:
                begun = self._by_member()
        worst = worst_bytes(passed[::PARTS], WORST_S, BURST_S) / WORST_S / BOUND
        shares = [later - first for later, first in zip(self._by_member(), begun, strict=True)]
        waits = self.load.waits_ms
        parts = [later - before for before, later in pairwise(passed[BURST_S * PARTS :])]
        return Figures(long_run(parts) * PARTS / BOUND, worst, jains_index(shares), sum(wait > 0 for wait in waits) / len(waits))

    def wait(self, time_ms: int) -> None:
        """Let time pass without a load."""
        self._proxies.wait(time_ms)

    def leave_all(self) -> None:
        """Let all clients leave."""
        for fetcher in list(self.load.fetchers):
            self.load.close(fetcher)

    def connect_all(self) -> None:
        """Let clients connect to each member at once; those of a load that moves to the next one."""
        for number, (count, pause_ms) in enumerate(next(self._placements)):
            for _ in range(count):
                peer = self._proxies.connect(number) if isinstance(self._proxies, FleetProxies) else self._proxies.connect()
                self.load.add([peer], pause_ms)
                self._connected.append((number % self._case.members, self.load.fetchers[-1]))

    def _by_member(self) -> list[int]:
        """Return the bytes that have passed at each member."""
        return [sum(fetcher.passed_bytes for at, fetcher in self._connected if at == number) for number in range(self._case.members)]


Placement = Sequence[tuple[int, int]]
"""For each member the number of connections, and the pause in ms of each between an answer and the next fetch."""


def _placements(case: Case) -> Iterator[Placement]:
    """Yield where clients connect, and where after each move."""
    if case.load == BELOW:
        return cycle([_below(case)])
    moves = range(case.members if case.load == "moving" else 1)
    return cycle([[(count, 0) for count in connections_of(case.load, case.members, CONNECTIONS, moves=at)] for at in moves])


def _below(case: Case) -> Placement:
    """Return connections below the bound: one member has 0.95 of it, less what each of the others fetches each 4 s."""
    others = (case.clients_of or case.members) - 1
    mean_bytes = 0.75 * ASKS_BYTES
    rate = BELOW_RATE - others * mean_bytes / (TRICKLE_MS + case.takes_ms) * 1_000
    pause_ms = round(1_000 * PACED * mean_bytes / rate) - case.takes_ms
    return [(PACED, pause_ms)] + [(1, TRICKLE_MS)] * others


def lines_of_fetches(
    members: Sequence[int], lags_ms: Sequence[int], takes_ms: Sequence[int], late_ms: int, seconds: int, runs: int
) -> list[str]:
    """Simulate all loads; return the table in Markdown, each fleet beside one process under the same load.

    Args:
        late_ms: a late bus is simulated with the first of `takes_ms` only.
        runs: figures are means of so many runs; of `BELOW` of at least `RUNS_BELOW`.
    """
    lines = [
        "| load | broker | members | D | rate / bound | over one process | worst 10 s | over one process | Jain's index | waited | more "
        "than at one process | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    slices = [(takes, 0) for takes in takes_ms] + [(takes_ms[0], late_ms)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        for load, (takes, late) in product(LOADS, slices):
            several = max(runs, RUNS_BELOW) if load == BELOW else runs
            for one, fleets in _beside(load, members, lags_ms, takes, late, seconds):
                cases = [one, *fleets]
                every = list(pool.map(simulated_fetches, *zip(*product(cases, range(1, several + 1)), strict=True)))
                alone, *found = (every[at : at + several] for at in range(0, len(every), several))
                lines += [_line_of_one(one, _mean(alone)), *(_line(case, its, alone) for case, its in zip(fleets, found, strict=True))]
                print("\n".join(lines[-len(cases) :]), flush=True)
    return lines


def _beside(
    load: str, members: Sequence[int], lags_ms: Sequence[int], takes_ms: int, late_ms: int, seconds: int
) -> Iterator[tuple[Case, list[Case]]]:
    """Yield one process and the fleets that have the same clients. Below the bound each further member has a client of its own."""
    for sizes in [(size,) for size in members] if load == BELOW else [tuple(members)]:
        one = Case(1, 0, load, takes_ms, 0, seconds, clients_of=sizes[0] if load == BELOW else 1)
        yield one, [Case(size, lag_ms, load, takes_ms, late_ms, seconds) for size in sizes for lag_ms in lags_ms]


def _mean(runs: Sequence[Figures]) -> Figures:
    return Figures(*map(fmean, zip(*runs, strict=True)))


def _name(case: Case) -> str:
    return f"{case.load} | {case.takes_ms} ms"


def _line_of_one(case: Case, figures: Figures) -> str:
    clients = f" (clients of {case.clients_of})" if case.clients_of > 1 else ""
    return f"| {_name(case)} | 1{clients} | | {figures.long_run:.3f} | | {figures.worst:.3f} | | | {figures.waited:.1%} | | |"


def _line(case: Case, runs: Sequence[Figures], alone: Sequence[Figures]) -> str:
    """Return the row of a fleet; `alone` are the runs of one process, with the same seeds."""
    figures, one = _mean(runs), _mean(alone)
    long_run, worst = figures.long_run / one.long_run, figures.worst / one.worst
    is_met = abs(long_run - 1) <= LONG_RUN_GOAL and worst <= WORST_GOAL
    more = ""
    if case.load == BELOW:
        difference = mean_interval([its.waited - ones.waited for its, ones in zip(runs, alone, strict=True)])
        is_met &= difference.low <= 0
        more = f"{difference.low:+.1%} to {difference.high:+.1%}"
    late = f" + {case.late_ms} ms" if case.late_ms else " ms"
    rates = f"{figures.long_run:.3f} | {long_run:.3f} | {figures.worst:.3f} | {worst:.3f} | {figures.fairness:.3f} | {figures.waited:.1%}"
    return f"| {_name(case)} | {case.members} | {case.lag_ms}{late} | {rates} | {more} | {'ok' if is_met else 'miss'} |"
