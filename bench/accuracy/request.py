"""Does a request quota let as many requests pass as on the broker itself? `python -m bench.accuracy --quota request` runs this.

One client asks for Metadata, or produces small records, as fast as answers arrive. It is limited by the broker's own `request_percentage`,
once directly and once behind a Sluice without quotas, and then by Sluice's. The runs are sequential, since a broker under more load charges
less for each request. A direct client sends its next request sooner, which keeps the broker's threads warm and makes each request cheaper.
The comparison with the broker behind Sluice therefore isolates the error of the estimate.
"""

import argparse
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace

from bench.handler_time.loads import Make, ask_metadata, produce_small
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine
from bench.harness.report import Report, machine_lines
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_process import Jvm
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic, set_client_quota

BROKER, BEHIND = "broker", "broker behind Sluice"
PERCENTAGES = (1, 10)
KINDS: dict[str, Make] = {"metadata": ask_metadata, "produce 200 B": produce_small}
LOW, HIGH = 0.6, 1.6
BURST_SECONDS, WARM_SECONDS = 12.0, 20.0
SETTINGS = {"num.io.threads": 8, "num.network.threads": 3}


@dataclass
class RequestCell:
    """One client under one enforcer: all answered requests, and those after the burst that a window allows."""

    kind: str
    percent: int
    enforcer: str
    requests: int
    seconds: float
    after_burst: int

    rounds: int = 1

    def __add__(self, other: "RequestCell") -> "RequestCell":
        """Return the sum of both rounds; `seconds` are those of one round."""
        requests, after_burst = self.requests + other.requests, self.after_burst + other.after_burst
        return replace(self, requests=requests, after_burst=after_burst, rounds=self.rounds + other.rounds)

    @property
    def steady(self) -> str:
        """Return the requests per second after the burst."""
        return f"{self.after_burst / self.rounds / (self.seconds - BURST_SECONDS):,.0f}" if self.seconds > BURST_SECONDS else ""

    def against(self, broker: "RequestCell") -> str:
        """Return the rate of passed requests over that of the broker."""
        ratio = self.requests / broker.requests
        later = f" ({self.after_burst / broker.after_burst:.2f} after the burst)" if broker.after_burst else ""
        return f"x{ratio:.2f}{later} {'ok' if LOW <= ratio <= HIGH else 'miss'}"


def table(cells: list[RequestCell]) -> list[str]:
    """Return all cells, those of Sluice compared with both of the broker."""
    lines = ["| load | quota | enforcer | requests | requests/s after the burst | against the broker | against it behind Sluice |"]
    lines.append("|---|--:|---|--:|--:|---|---|")
    by_place = {(cell.kind, cell.percent, cell.enforcer): cell for cell in cells}
    for cell in cells:
        brokers = [by_place[cell.kind, cell.percent, broker] for broker in (BROKER, BEHIND)]
        judged = ["", ""] if cell.enforcer in (BROKER, BEHIND) else [cell.against(broker) for broker in brokers]
        lines.append(f"| {cell.kind} | {cell.percent} % | {cell.enforcer} | {cell.requests:,} | {cell.steady} | {' | '.join(judged)} |")
    return lines


def run(options: argparse.Namespace) -> int:
    """Run all cells; return 1 when a goal was missed."""
    cells: list[RequestCell] = []
    with ExitStack() as stack:
        engine = Engine()
        stack.callback(engine.close)
        jvm = Jvm(heap_mb=900, optimises=True)
        cluster = stack.enter_context(KafkaCluster(KRAFT, name="request-accuracy", settings=SETTINGS, jvm=jvm))
        port = next(iter(cluster.nodes.values())).ports.client
        with JavaTools(KRAFT) as tools:
            create_topic(tools, cluster.bootstrap, "small")
            for percent in PERCENTAGES:
                for kind in KINDS:
                    for broker in (BROKER, BEHIND):
                        set_client_quota(tools, cluster.bootstrap, _client_id(kind, percent, broker), request_percentage=percent)
        _warm(engine, port)
        for percent in PERCENTAGES:
            with ExitStack() as running:
                arms = {BROKER: Arm(BROKER, None, port), BEHIND: start_sluice(port, engine.folder, produce=None, fetch=None)}
                running.callback(arms[BEHIND].stop)
                for mode in options.modes:
                    flags = ["--enforcement", mode]
                    arms[mode] = start_sluice(port, engine.folder, produce=None, fetch=None, request=percent, flags=flags)
                    running.callback(arms[mode].stop)
                for kind in KINDS:
                    cells += _measure_all(engine, arms, kind, percent, options)
                    print("\n".join(table(cells)[-len(arms) :]), flush=True)
    report = Report("accuracy-request")
    each = f"{options.rounds} x {options.seconds:g} s"
    how = f"- Apache Kafka {KRAFT}, one connection, {each} for each, one after the other, every second time backwards"
    report.add(*machine_lines(), how, "", *table(cells))
    report.data["cells"] = [vars(cell) for cell in cells]
    print("\n" + report.text())
    if not options.no_write:
        report.write(options.out)
    return int(any("miss |" in line for line in table(cells)))


def _client_id(kind: str, percent: int, enforcer: str) -> str:
    return f"{kind.split()[0]}-{percent}-{enforcer.replace(' ', '-')}"


def _warm(engine: Engine, port: int) -> None:
    """Let the broker's compiler see both kinds of requests."""
    load = engine.load([make(f"warm-{name.split()[0]}") for name, make in KINDS.items()], port, conns=len(KINDS))
    time.sleep(WARM_SECONDS)
    load.stop()


def _measure_all(engine: Engine, arms: dict[str, Arm], kind: str, percent: int, options: argparse.Namespace) -> list[RequestCell]:
    """Run one load under every enforcer, as often as asked for; the other runs take so long that each window is empty again."""
    cells: dict[str, RequestCell] = {}
    for number in range(options.rounds):
        for enforcer in arms if number % 2 == 0 else reversed(arms):
            cell = _measure(engine, arms[enforcer], kind, percent, enforcer, options.seconds)
            cells[enforcer] = cells[enforcer] + cell if enforcer in cells else cell
    return [cells[enforcer] for enforcer in arms]


def _measure(engine: Engine, arm: Arm, kind: str, percent: int, enforcer: str, seconds: float) -> RequestCell:
    client_id = _client_id(kind, percent, enforcer)
    load = engine.load([KINDS[kind](client_id)], arm.port, conns=1)
    try:
        time.sleep(min(BURST_SECONDS, seconds))
        burst = load.done()
        time.sleep(max(0.0, seconds - BURST_SECONDS))
        done = load.done()
    finally:
        load.stop()
    return RequestCell(kind, percent, enforcer, done, seconds, done - burst)
