"""CPU of a request and of a connection: all processes of one Sluice, compared with others under the same load.

Two sets of processes run in turn, one slice of load each, every second time in the opposite order; a figure is the median of the ratios of
neighbouring slices. All processes of a start have the same memory layout, and the next start has another one.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.cost.cost import SMALL_RECORD_BYTES
from bench.cost.intervals import Interval, median_interval
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine, Load, cpu_seconds
from bench.harness.frames import Template, api_versions_request, produce_request

WARM_S = 0.4
CHURN_AT_ONCE_MAX, CHURN_AT_ONCE = 256, 32
GENERATORS = 2


@dataclass(frozen=True, slots=True)
class Demand:
    """The load of a set of Sluices, divided equally among them.

    Attributes:
        conns: the number of connections in all.
        rate: requests, or connections, per second in all; 0: the next one after each answer.
        churn: a new connection for each request.
    """

    request: Template
    conns: int
    rate: float
    churn: bool = False


@dataclass
class Slice:
    """One slice of load.

    Attributes:
        us: CPU microseconds of all processes for one request, or one connection.
        per_second: requests or connections per second.
        busy: share of one core that each process had; the supervisor is the first of its Sluice.
        machine_busy: share of the machine's cores that all processes used.
    """

    us: float
    per_second: float
    busy: list[float]
    machine_busy: float


@dataclass
class Pairs:
    """Slices of two sets, in order."""

    one: list[Slice] = field(default_factory=list)
    other: list[Slice] = field(default_factory=list)

    @property
    def ratio(self) -> Interval:
        """Return the CPU of the one over the CPU of the other."""
        return median_interval([a.us / b.us for a, b in zip(self.one, self.other, strict=True)])


def small_produce(conns: int, rate: float) -> Demand:
    """Produce with 200 B of records."""
    return Demand(produce_request(7, filler=SMALL_RECORD_BYTES), conns, rate)


def new_connections(rate: float) -> Demand:
    """Connect, ask for ApiVersions, close; `rate` 0: at full speed, 32 at a time."""
    return Demand(api_versions_request(3), CHURN_AT_ONCE_MAX if rate else CHURN_AT_ONCE, rate, churn=True)


@dataclass(frozen=True, slots=True)
class Side:
    """A set of Sluices, each given by its number of workers, and its load.

    Attributes:
        flags: further arguments of each Sluice; empty: there are none.
    """

    workers: Sequence[int]
    demand: Demand
    flags: Sequence[Sequence[str]] = ()

    def arguments(self, number: int) -> list[str]:
        """Return the arguments of one Sluice."""
        return ["--workers", str(self.workers[number]), *(self.flags[number] if self.flags else ())]


def compare(
    engine: Engine, one: Side, other: Side, *, starts: int, pairs: int, seconds: float, broker_port: int | None = None, without: str = ""
) -> Pairs:
    """Measure two sets of Sluices in turn.

    Args:
        broker_port: a broker; None: a stub.
        without: processes with this name do not count.
    """
    found, sides = Pairs(), (one, other)
    for seed in range(1, starts + 1):
        with ExitStack() as stack:
            upstream_port = _stub(engine, stack) if broker_port is None else broker_port
            sets = [[_started(engine, stack, upstream_port, side.arguments(at), seed) for at in range(len(side.workers))] for side in sides]
            for arms, side in zip(sets, sides, strict=True):
                _slice(engine, arms, side.demand, WARM_S, without)  # the first slice of a process is slower than later ones
            for turn in range(pairs):
                order = (0, 1) if turn % 2 == 0 else (1, 0)
                slices = {at: _slice(engine, sets[at], sides[at].demand, seconds, without) for at in order}
                found.one.append(slices[0])
                found.other.append(slices[1])
    return found


def _stub(engine: Engine, stack: ExitStack) -> int:
    stub, port = engine.stub(1)
    stack.callback(stub.stop)
    return port


def _started(engine: Engine, stack: ExitStack, upstream_port: int, flags: list[str], seed: int) -> Arm:
    arm = start_sluice(upstream_port, engine.folder, flags=flags, seed=seed)
    stack.callback(arm.stop)
    return arm


def _slice(engine: Engine, arms: Sequence[Arm], demand: Demand, seconds: float, without: str) -> Slice:
    """Send for a while, with as many load generators for either set."""
    with ExitStack() as stack:
        loads: list[Load] = []
        conns, rate = demand.conns // GENERATORS, demand.rate / GENERATORS
        for at in range(GENERATORS):
            load = engine.load(demand.request, arms[at % len(arms)].port, conns=conns, rate=rate, churn=demand.churn)
            stack.callback(load.stop)
            loads.append(load)
        time.sleep(WARM_S)
        pids = [pid for arm in arms for pid in arm.pids() if not without or without != Path(f"/proc/{pid}/comm").read_text().strip()]
        began, done, machine = time.monotonic(), sum(load.done() for load in loads), _machine_ticks()
        cpu = [cpu_seconds([pid]) for pid in pids]
        time.sleep(seconds)
        used = [cpu_seconds([pid]) - before for pid, before in zip(pids, cpu, strict=True)]
        done = sum(load.done() for load in loads) - done
        elapsed, now = time.monotonic() - began, _machine_ticks()
    if not done:
        raise RuntimeError("no request was answered")
    machine_busy = 1 - (now[1] - machine[1]) / max(1, now[0] - machine[0])
    return Slice(sum(used) / done * 1e6, done / elapsed, [one / elapsed for one in used], machine_busy)


def _machine_ticks() -> tuple[int, int]:
    """Return the ticks of all cores, and the idle ones among them."""
    with open("/proc/stat") as file:
        ticks = [int(one) for one in file.readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]
