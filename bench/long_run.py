"""Clients that send ten times their quota for two minutes: does a client lose its connection, and what is its long-run rate?

python -m bench.long_run [--seconds 120] [--quota bytes request] [--client NAME]... [--enforcer broker mute delay] [--no-write]

Producers of Java 4.3.1, Java 3.9.1 and librdkafka run at once, each with a topic, a client-id and a quota of its own, limited by the broker
itself, by Sluice in mute and by Sluice in delay. The rate is the slope of the straight line through the sums at each half second from
second 30 on, since a quota lets bytes pass in waves of eleven seconds. The goal is 0.95 to 1.05 of the bound for k <= 0.2, where k is
connections x mean request / bound in seconds, and for larger k at most (1 + sqrt(1 + 4k / 10.5)) / 2. Needs a JDK and Maven.
"""

import argparse
import json
import math
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import HOST, ROOT, Engine
from bench.harness.report import Report, machine_lines
from bench.harness.tap import Tap
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, create_topic, set_client_quota, start_producer

JAVA = {"java-4.3.1": KRAFT, "java-3.9.1": ZOOKEEPER}
CLIENTS = [*JAVA, "librdkafka"]
ENFORCERS = ["broker", "mute", "delay"]
QUOTAS = ["bytes", "request"]
NEED = 10  # multiples of the bound
RECORD_BYTES = 1_000
BYTE_BOUND = 200_000.0
REQUEST_BOUND = 1.0  # percent of one thread
REQUEST_RECORDS_PER_SECOND = 2_000  # one record per request: far more handler time than the bound
SETTLED_S = 30.0
SAMPLE_S = 0.5
START_SECONDS_MAX = 120
K_SMALL = 0.2
BATCH_BYTES = 16_384  # Java's default; librdkafka would make batches of a megabyte, and k would exceed 0.2


@dataclass
class Cell:
    """One client under one enforcer."""

    client: str
    enforcer: str
    quota: str
    bound: float
    samples: list[tuple[float, float]] = field(default_factory=list)
    requests: int = 0
    disconnects: int = 0
    minutes: float = 2.0

    @property
    def name(self) -> str:
        """Return its client-id, which is also its topic."""
        return f"{self.client}-{self.enforcer}-{self.quota}"

    @property
    def ratio(self) -> float:
        """Return the long-run rate over the bound."""
        return slope([sample for sample in self.samples if sample[0] >= SETTLED_S]) / self.bound

    @property
    def plain_ratio(self) -> float:
        """Return the ratio from the first and the last of these samples only."""
        settled = [sample for sample in self.samples if sample[0] >= SETTLED_S]
        (start, first), (end, last) = settled[0], settled[-1]
        return (last - first) / (end - start) / self.bound

    @property
    def k(self) -> float:
        """Return the seconds of quota in one request of one connection."""
        return self.samples[-1][1] / max(self.requests, 1) / self.bound

    @property
    def verdict(self) -> str:
        """Compare with the goals; the broker is the reference."""
        if self.enforcer == "broker":
            return ""
        ceiling = 1.05 if self.k <= K_SMALL else max(1.05, (1 + math.sqrt(1 + 4 * self.k / 10.5)) / 2 * 1.01)
        missed = ["disconnects"] if self.disconnects > self.minutes else []
        missed += ["rate"] if not 0.95 <= self.ratio <= ceiling else []
        return f"miss: {', '.join(missed)}" if missed else "ok"

    def line(self) -> str:
        """Return the row of the table."""
        figures = f"{self.ratio:.3f} | {self.plain_ratio:.3f} | {self.k:.2f} | {self.requests:,} | {self.disconnects}"
        return f"| {self.client} | {self.quota} | {self.enforcer} | {figures} | {self.verdict} |"


def slope(samples: list[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through all samples."""
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / sum((x - mean_x) ** 2 for x, _ in samples)


HEAD = [
    "| client | quota | enforcer | long-run rate / bound | by its ends | k, s | Produce requests | disconnects | |",
    "|---|---|---|--:|--:|--:|--:|--:|---|",
]


class Clients:
    """Producers that run until the block ends."""

    def __init__(self, stack: ExitStack, cells: list[Cell]) -> None:
        self._stack = stack
        self._tools = {name: stack.enter_context(JavaTools(JAVA[name])) for name in JAVA if any(cell.client == name for cell in cells)}

    def start(self, cell: Cell, bootstrap: str, seconds: float) -> None:
        """Start a client that always has more to send."""
        rate = NEED * cell.bound / RECORD_BYTES if cell.quota == "bytes" else REQUEST_RECORDS_PER_SECOND
        settings = {} if cell.quota == "bytes" else {"linger.ms": "0", "batch.size": "1"}
        if cell.client in JAVA:
            load = ProducerLoad(cell.name, round(rate * seconds * 2), RECORD_BYTES, cell.name, settings, records_per_second=round(rate))
            start_producer(self._tools[cell.client], bootstrap, load)
            return
        settings = {"batch.size": str(BATCH_BYTES)} if cell.quota == "bytes" else {"linger.ms": "0", "batch.num.messages": "1"}
        words = [bootstrap, cell.name, cell.name, str(rate), *(f"{key}={value}" for key, value in settings.items())]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.clients.paced_app", *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def run(cells: list[Cell], tap: Tap, folder: Path, seconds: float) -> None:
    """Run all cells of one quota type at once, and fill in their results."""
    quota, enforcers = cells[0].quota, {cell.enforcer for cell in cells}
    with ExitStack() as stack:
        clients = Clients(stack, cells)
        with JavaTools(KRAFT) as tools:
            for cell in cells:
                create_topic(tools, f"{HOST}:{tap.port}", cell.name)
                if cell.enforcer == "broker":
                    key = "producer_byte_rate" if quota == "bytes" else "request_percentage"
                    set_client_quota(tools, f"{HOST}:{tap.port}", cell.name, **{key: cell.bound})
        arms: dict[str, Arm] = {}
        for mode in enforcers - {"broker"}:
            bound = {"produce": BYTE_BOUND} if quota == "bytes" else {"produce": None, "request": REQUEST_BOUND}
            arms[mode] = start_sluice(tap.port, folder, fetch=None, flags=["--enforcement", mode], **bound)  # type: ignore[arg-type]
            stack.callback(arms[mode].stop)
        for cell in cells:
            clients.start(cell, arms[cell.enforcer].bootstrap if cell.enforcer in arms else f"{HOST}:{tap.port}", seconds)
        _sample(cells, _passed(tap) if quota == "bytes" else _charged(arms), seconds)
        for cell in cells:
            trace = tap.clients[cell.name]
            cell.requests, cell.disconnects, cell.minutes = trace.produce_requests, trace.disconnects, seconds / 60


def _sample(cells: list[Cell], amounts: Callable[[], dict[str, float]], seconds: float) -> None:
    """Record amounts until each client has had its seconds, counted from its first request: some take long to start."""
    first: dict[str, float] = {}
    now = time.monotonic()
    deadline = now + seconds + START_SECONDS_MAX
    while len(first) < len(cells) or now < max(first.values()) + seconds:
        now = time.monotonic()
        if now > deadline:
            raise RuntimeError(f"nothing came from {[cell.name for cell in cells if cell.name not in first]}")
        known = amounts()
        for cell in cells:
            if cell.name in known:
                began = first.setdefault(cell.name, now)
                if now - began < seconds:
                    cell.samples.append((now - began, known[cell.name]))
        time.sleep(SAMPLE_S)


def _passed(tap: Tap) -> Callable[[], dict[str, float]]:
    return lambda: {name: float(trace.passed_bytes) for name, trace in list(tap.clients.items())}


def _charged(arms: dict[str, Arm]) -> Callable[[], dict[str, float]]:
    """Return percent x seconds of request time, as Sluice counts it."""

    def look() -> dict[str, float]:
        charged: dict[str, float] = {}
        for arm in arms.values():
            with urllib.request.urlopen(f"http://{arm.admin}/quotas", timeout=5) as answer:
                groups = json.load(answer)["groups"]
            for group in groups:
                if group["quota_type"] == "Request":
                    name = group["tags"]["client-id"]
                    charged[name] = charged.get(name, 0.0) + group["recorded_total"]
        return charged

    return look


def main() -> int:
    """Run what was asked for; return 1 when a goal was missed."""
    options = _options()
    cells: list[Cell] = []
    with ExitStack() as stack:
        engine = Engine(python_only=True)
        stack.callback(engine.close)
        tap = stack.enter_context(Tap(options.seconds))
        listeners = {"advertised.listeners": f"PLAINTEXT://{HOST}:{tap.port}"}
        cluster = stack.enter_context(KafkaCluster(KRAFT, name="long-run", settings=listeners))
        tap.upstream_port = int(cluster.bootstrap.rsplit(":", 1)[1])
        for quota in options.quota:
            bound = BYTE_BOUND if quota == "bytes" else REQUEST_BOUND
            enforcers = [name for name in options.enforcer if quota == "bytes" or name != "broker"]  # judged by another bench
            some = [Cell(client, enforcer, quota, bound) for client in options.client for enforcer in enforcers]
            run(some, tap, engine.folder, options.seconds)
            print("\n".join([*HEAD, *[cell.line() for cell in some]]), flush=True)
            cells += some
    report = Report("long-run")
    report.add(
        *machine_lines(),
        f"- Apache Kafka {KRAFT}, {options.seconds:g} s, all cells of a quota at once",
        f"- bytes: {BYTE_BOUND:,.0f} B/s each, wanted {NEED} times that; "
        f"request: {REQUEST_BOUND:g} % each, {REQUEST_RECORDS_PER_SECOND:,} requests of one record wanted each second",
        "",
        *HEAD,
        *[cell.line() for cell in cells],
    )
    report.data["cells"] = [
        {**vars(cell), "samples": cell.samples[:: round(1 / SAMPLE_S)], "ratio": cell.ratio, "k": cell.k, "verdict": cell.verdict}
        for cell in cells
    ]
    if not options.no_write:
        report.write(options.out)
    return int(any(cell.verdict.startswith("miss") for cell in cells))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.long_run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--quota", nargs="+", choices=QUOTAS, default=QUOTAS)
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--enforcer", nargs="+", choices=ENFORCERS, default=ENFORCERS)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "clients")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
