"""Connection storms: does Sluice admit as many connections as a real broker with the same KIP-612 quotas?

python -m bench.storms [--seconds 20] [--storm NAME]... [--workers 1,4] [--no-write]

Each storm runs against Apache Kafka's own quotas (kafka-configs: brokers, ips), then against Sluice in front of the same broker, which then
has none. A storm is a bounded number of loops in this process that connect, ask for ApiVersions and close again; an answer counts as a
served connection, an end without an answer as a refused one. The goal is a number of served connections within 5 % of the broker's over all
seconds, with the burst of the first window; the rate over one window in the middle is printed as well. `--workers` runs each storm through
a Sluice with each of these numbers of workers, one after the other. Needs a JDK and Maven.
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.harness.engine import HOST, ROOT, Engine
from bench.harness.frames import api_versions_request
from bench.harness.report import Report, machine_lines
from bench.options import numbers
from tests.support.kafka.broker import KafkaCluster, KafkaNode, answers_api_versions
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.settings import NodePorts
from tests.support.kafka.tool_calls import CONFIG_COMMAND
from tests.support.ports import free_bootstrap_port, free_port

FROM_S, TO_S = 6.0, 17.0  # one window that begins and ends between two waves, so that waves of one window give their rate
QUIET_S = 12.0
PATIENCE_S = 15.0
AGAIN_S = 0.01
START_SECONDS_MAX = 30
TOLERANCE = 0.05
UNLIMITED = 1_000_000
ASK = api_versions_request(0).whole()


@dataclass(frozen=True)
class Storm:
    """The sources, the listener and the limits. Rates are connections per second, None or absent where there is none."""

    name: str
    sources: int
    loops: Mapping[str, int]
    """The number of loops by listener, spread over the sources."""
    process_rate: int | None = None
    listener_rates: Mapping[str, int] = field(default_factory=dict)
    ip_rate: int | None = None
    """The rate of each address."""
    per_ip: int | None = None
    """The limit of open connections per address; with a limit connections are kept open."""

    def source(self, number: int) -> str:
        """Return a source address of this storm alone, so that no storm has another one's history."""
        return f"127.{1 + STORMS.index(self)}.{number // 200}.{1 + number % 200}"


STORMS = [
    Storm("one address, 20/s", 1, {"a": 200}, ip_rate=20),
    Storm("200 addresses, 1/s each", 200, {"a": 400}, ip_rate=1),
    Storm("200 addresses, process 100/s", 200, {"a": 200}, process_rate=100),
    Storm("two listeners, 50/s and 20/s", 20, {"a": 60, "b": 60}, listener_rates={"a": 50, "b": 20}),
    Storm("20 addresses, 3 connections each", 20, {"a": 200}, per_ip=3),
]


@dataclass
class Count:
    """The result of one storm at one listener."""

    served: int = 0
    in_window: int = 0
    refused: int = 0


class StormCluster(KafkaCluster):
    """A broker with listeners "A" and "B" beside its own, which is then exempt from the limits of the process."""

    storm_ports: Mapping[str, int]

    def _make_node(self, ports: NodePorts, cluster_id: str, extra: Mapping[str, str | int]) -> KafkaNode:
        self.storm_ports = {"a": free_port(), "b": free_port()}
        more = "".join(f",{name.upper()}://{HOST}:{port}" for name, port in self.storm_ports.items())
        listeners = f"PLAINTEXT://{HOST}:{ports.client}{more}"
        settings = {
            "listeners": f"{listeners},CONTROLLER://{HOST}:{ports.controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT",
        }
        return super()._make_node(ports, cluster_id, {**extra, **settings})


# --- the quotas of the broker and of Sluice


@contextmanager
def broker_quotas(tools: JavaTools, cluster: KafkaCluster, storm: Storm) -> Iterator[None]:
    """Set the storm's quotas on the broker itself, for the length of a block."""
    node_id = str(cluster.ports[0].node_id)
    broker = {} if storm.process_rate is None else {"max.connection.creation.rate": storm.process_rate}
    broker |= {f"listener.name.{name}.max.connection.creation.rate": rate for name, rate in storm.listener_rates.items()}
    broker |= {} if storm.per_ip is None else {"max.connections.per.ip": storm.per_ip, "max.connections.per.ip.overrides": f"{HOST}:1000"}
    addresses = [storm.source(number) for number in range(storm.sources)]
    entities: list[tuple[str, ...]] = []
    if storm.ip_rate is not None:
        entities = [("--entity-default",)] if len(addresses) > 1 else [("--entity-name", addresses[0])]

    def alter(kind: str, entity: tuple[str, ...], change: str, what: str) -> None:
        tools.run(CONFIG_COMMAND, "--bootstrap-server", cluster.bootstrap, "--alter", "--entity-type", kind, *entity, change, what)

    values = {**broker}
    if entities == [("--entity-default",)]:
        alter("ips", ("--entity-name", HOST), "--add-config", f"connection_creation_rate={UNLIMITED}")  # connections of the tools
    if values:
        # a list of values is in brackets, since a comma separates both settings and values
        alter("brokers", ("--entity-name", node_id), "--add-config", ",".join(f"{key}={value}" for key, value in values.items()))
    for entity in entities:
        alter("ips", entity, "--add-config", f"connection_creation_rate={storm.ip_rate}")
    try:
        yield
    finally:
        if values:
            alter("brokers", ("--entity-name", node_id), "--delete-config", ",".join(values))
        for entity in entities:
            alter("ips", entity, "--delete-config", "connection_creation_rate")


@contextmanager
def sluice(folder: Path, upstream: str, storm: Storm, workers: int) -> Iterator[dict[str, int]]:
    """Start Sluice with the same quotas and this many workers; yield the port of each listener."""
    ports = {"a": free_bootstrap_port(), "b": free_bootstrap_port()}
    lines = ["[upstream]", f'bootstrap = "{upstream}"', "[quotas]", 'path = "storm-quotas.toml"', "[connections]", "max_connections = 5000"]
    lines += [] if storm.process_rate is None else [f"max_connection_creation_rate = {storm.process_rate}"]
    lines += [] if storm.per_ip is None else [f"max_connections_per_ip = {storm.per_ip}"]
    for name, port in ports.items():
        lines += ["[[listener]]", f'name = "{name}"', f'address = "{HOST}:{port}"']
        lines += [f"max_connection_creation_rate = {storm.listener_rates[name]}"] if name in storm.listener_rates else []
    (folder / "storm.toml").write_text("\n".join(lines) + "\n")
    address = "<default>" if storm.sources > 1 else storm.source(0)
    quota = "" if storm.ip_rate is None else f'[[quota]]\nip = "{address}"\nconnection_creation_rate = {storm.ip_rate}\n'
    (folder / "storm-quotas.toml").write_text(quota)
    log = folder / "storm.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "sluice_cli", "run", "--config", str(folder / "storm.toml"), "--workers", str(workers)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not all(_answers(port) for port in ports.values()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Sluice did not start: {log.read_text()[-2_000:]}")
            time.sleep(0.1)
        time.sleep(QUIET_S)  # later than the window of the requests just sent
        yield ports
    finally:
        process.terminate()
        process.wait(20)


def _answers(port: int) -> bool:
    with suppress(OSError):
        return answers_api_versions(HOST, port)
    return False


# --- the storm


async def blow(storm: Storm, ports: Mapping[str, int], seconds: float) -> dict[str, Count]:
    """Run the storm for `seconds`."""
    counts = {name: Count() for name in storm.loops}
    start = time.monotonic()
    loops = [
        _one_loop(storm, storm.source(number % storm.sources), ports[name], counts[name], start, seconds)
        for name, count in storm.loops.items()
        for number in range(count)
    ]
    await asyncio.gather(*loops)
    return counts


async def _one_loop(storm: Storm, source: str, port: int, count: Count, start: float, seconds: float) -> None:
    end = start + seconds
    while time.monotonic() < end:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            async with asyncio.timeout(min(PATIENCE_S, end - time.monotonic())):
                await _ask(sock, source, port)
        except TimeoutError:
            count.refused += time.monotonic() < end  # attempts that the end of the storm interrupts do not count
        except OSError:
            count.refused += 1
        else:
            count.served += 1
            count.in_window += FROM_S <= time.monotonic() - start < TO_S
            if storm.per_ip is not None:
                await asyncio.sleep(max(0.0, end - time.monotonic()))
        finally:
            sock.close()
        await asyncio.sleep(AGAIN_S)


async def _ask(sock: socket.socket, source: str, port: int) -> None:
    """Connect and read an answer.

    Raises:
        OSError: the connection ended first.
    """
    loop = asyncio.get_running_loop()
    sock.bind((source, 0))
    await loop.sock_connect(sock, (HOST, port))
    await loop.sock_sendall(sock, ASK)
    received = bytearray()
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        data = await loop.sock_recv(sock, 65_536)
        if not data:
            raise ConnectionResetError("ended without an answer")
        received += data


# --- the table


@dataclass
class Row:
    """One listener in one storm, through a Sluice with this many workers."""

    storm: Storm
    listener: str
    workers: int
    broker: Count
    sluice: Count
    seconds: float

    @property
    def verdict(self) -> str:
        """Compare with the goal."""
        return "ok" if abs(self.sluice.served / max(self.broker.served, 1) - 1) <= TOLERANCE else "miss"

    def line(self) -> str:
        """Return the row of the table."""
        cells = [self.storm.name, self.listener, str(self.workers)]
        cells += [f"{count.served:,} ({count.refused:,})" for count in (self.broker, self.sluice)]
        cells.append(f"{self.sluice.served / max(self.broker.served, 1):.3f}")
        if self.storm.per_ip is None:
            cells += [f"{count.in_window / (TO_S - FROM_S):.1f}" for count in (self.broker, self.sluice)]
            cells.append(f"{self.sluice.in_window / max(self.broker.in_window, 1):.3f}")
        else:
            cells += ["", "", ""]
        return f"| {' | '.join(cells)} | {self.verdict} |"


HEAD = [
    "| storm | listener | workers | served (refused) by the broker | Sluice | ratio | served/s in 6 to 17 s, broker | Sluice | ratio | |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
]


def main() -> int:
    """Run the storms; return 1 when a goal was missed."""
    options = _options()
    rows: list[Row] = []
    with ExitStack() as stack:
        engine = Engine(python_only=True)
        stack.callback(engine.close)
        cluster = stack.enter_context(StormCluster(KRAFT, name="storms"))
        tools = stack.enter_context(JavaTools(KRAFT))
        print("\n".join(HEAD), flush=True)
        for storm in STORMS:
            if options.storm and storm.name not in options.storm:
                continue
            with broker_quotas(tools, cluster, storm):
                by_broker = uvloop.run(blow(storm, cluster.storm_ports, options.seconds))
            for workers in options.workers:
                with sluice(engine.folder, cluster.bootstrap, storm, workers) as ports:
                    by_sluice = uvloop.run(blow(storm, ports, options.seconds))
                some = [Row(storm, name, workers, by_broker[name], by_sluice[name], options.seconds) for name in storm.loops]
                print("\n".join(row.line() for row in some), flush=True)
                rows += some
    report = Report("storms")
    report.add(*machine_lines(), f"- Apache Kafka {KRAFT}, {options.seconds:g} s each", "", *HEAD, *[row.line() for row in rows])
    report.data["rows"] = [
        {
            "storm": row.storm.name,
            "listener": row.listener,
            "workers": row.workers,
            "broker": vars(row.broker),
            "sluice": vars(row.sluice),
            "verdict": row.verdict,
        }
        for row in rows
    ]
    if not options.no_write:
        report.write(options.out)
    return int(any(row.verdict == "miss" for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.storms", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--storm", nargs="+", choices=[storm.name for storm in STORMS])
    parser.add_argument("--workers", type=numbers, default=[1], help="numbers of worker processes, such as 1,4")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "faults")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
