"""The cost of TLS from clients: Sluice's own, uvloop's own, HAProxy's where it is installed, and a bare pump without TLS, in one run.

"uvloop-tls" and "sluice-tls" are the same bare pump, with uvloop's TLS and with Sluice's. "sluice" is the whole proxy.

python -m bench.tls [--seconds S] [--runs N] [--load NAME]... [--no-write]
"""

import socket
import ssl
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shutil import which

import click

from bench.cost.cost import LOADS, MIB, CostLoad, CostRow, measure_cost
from bench.cost.memory import KIB, MemoryRow, _exactly, memory_lines
from bench.harness.arms import Arm, Starter, _child, _when_listening, start_pump, start_sluice
from bench.harness.engine import HOST, Engine, rss_bytes
from bench.harness.frames import api_versions_request, produce_request
from bench.harness.report import Report, machine_lines
from tests.support.ports import free_port
from tests.support.tls.certificates import Authority

RESULTS = Path(__file__).parent / "results" / "cost"
BUSY_CONNECTIONS, IDLE_CONNECTIONS = 50, 500
JUDGED = "sluice-tls", "sluice"
ROWS = ("produce-200B-depth1", "produce-1MB", "fetch-1MB", "churn")


class TlsEngine(Engine):
    """Loads with TLS for every proxy but the bare pump."""

    def __init__(self) -> None:
        super().__init__()
        self.authority = Authority(self.folder)
        self.server = self.authority.issue("server", hosts=(HOST,))
        self.pem = self.folder / "server.pem"
        self.pem.touch(mode=0o600)
        self.pem.write_bytes(self.server.certificate.read_bytes() + self.server.key.read_bytes())
        self.plain_ports: set[int] = set()

    def load(self, requests, port, **options):
        """Start a load with TLS unless the port is the bare pump's; the peers are in Python in both cases."""
        if port in self.plain_ports:
            peer, self._peer = self._peer, None
            try:
                return super().load(requests, port, **options)
            finally:
                self._peer = peer
        return super().load(requests, port, ca=self.authority.file, **options)

    def starters(self) -> dict[str, Starter]:
        """Return the proxies by name."""
        found: dict[str, Starter] = {
            "pump": self._pump,
            "uvloop-tls": self._uvloop,
            "sluice-tls": self._ours,
            "sluice": self._sluice,
        }
        return found | ({"haproxy": self._haproxy} if which("haproxy") else {})

    def _pump(self, upstream_port: int, folder: Path) -> Arm:
        arm = start_pump(upstream_port, folder)
        self.plain_ports.add(arm.port)
        return arm

    def _uvloop(self, upstream_port: int, folder: Path) -> Arm:
        return self._pump_with("uvloop-tls", upstream_port)

    def _ours(self, upstream_port: int, folder: Path) -> Arm:
        return self._pump_with("sluice-tls", upstream_port, "ours")

    def _pump_with(self, name: str, upstream_port: int, *which_tls: str) -> Arm:
        port = free_port()
        process = _child([sys.executable, "-m", "bench.harness.pump", str(port), str(upstream_port), str(self.pem), *which_tls])
        return _when_listening(Arm(name, process, port))

    def _sluice(self, upstream_port: int, folder: Path) -> Arm:
        config = folder / "tls.toml"
        config.write_text(
            f'[upstream]\nbootstrap = "{HOST}:1"\n[[listener]]\naddress = "{HOST}:1"\n'
            f'[listener.tls]\ncertificate = "{self.server.certificate}"\nkey = "{self.server.key}"\n'
        )
        return start_sluice(upstream_port, folder, flags=("--config", str(config)), learn=False)

    def _haproxy(self, upstream_port: int, folder: Path) -> Arm:
        port = free_port()
        config = folder / "haproxy-tls.cfg"
        config.write_text(
            "global\n  nbthread 1\n  maxconn 5000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
            f"frontend f\n  bind {HOST}:{port} ssl crt {self.pem}\n  default_backend b\nbackend b\n  server s {HOST}:{upstream_port}\n"
        )
        return _when_listening(Arm("haproxy", _child(["haproxy", "-db", "-f", str(config)]), port))


def cost_table(rows: list[CostRow]) -> list[str]:
    """Measure CPU per request, relative to the bare pump without TLS and to uvloop's TLS."""
    lines = ["| load | proxy | CPU us/request (median) | x pump | x uvloop's TLS | goal | |", "|---|---|--:|--:|--:|--:|---|"]
    for row in rows:
        base = row.ratio("uvloop-tls")
        for name, cost in row.costs.items():
            ratio = row.ratio(name)
            if ratio is None or base is None:
                lines.append(f"| {row.load.name} | {name} | failed | | | | |")
                continue
            us = sorted(cost.microseconds)[len(cost.microseconds) // 2]
            judged = ("< 1.00", "ok" if ratio < base else "miss") if name in JUDGED else ("", "")
            lines.append(f"| {row.load.name} | {name} | {us:.2f} | {ratio:.2f} | {ratio / base:.2f} | {judged[0]} | {judged[1]} |")
    return lines


def idle(engine: TlsEngine, arm: Arm) -> float:
    """Measure resident KiB per connection that has sent one request and is idle."""
    context = None if arm.port in engine.plain_ports else ssl.create_default_context(cafile=engine.authority.file)
    request = api_versions_request(3).whole()
    with ExitStack() as stack:
        before = 0
        for number in range(IDLE_CONNECTIONS + 20):
            if number == 20:  # one-time memory of the first connections
                before = rss_bytes(arm.pids())
            connection = socket.create_connection((HOST, arm.port), 10)
            if context is not None:
                connection = context.wrap_socket(connection, server_hostname=HOST)
            stack.enter_context(connection)
            connection.sendall(request)
            _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))
        time.sleep(1)
        return (rss_bytes(arm.pids()) - before) / IDLE_CONNECTIONS / KIB


def busy(engine: TlsEngine, arm: Arm, seconds: float) -> float:
    """Measure the largest resident KiB per connection that sends 1 MiB repeatedly."""
    before = rss_bytes(arm.pids())
    running = engine.load(produce_request(7, filler=MIB), arm.port, conns=BUSY_CONNECTIONS)
    try:
        highest = before
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.1)
            highest = max(highest, rss_bytes(arm.pids()))
    finally:
        running.stop()
    return (highest - before) / BUSY_CONNECTIONS / KIB


def memory_rows(engine: TlsEngine, seconds: float) -> list[MemoryRow]:
    """Return both memory rows of every proxy."""
    rows = []
    for name, start in engine.starters().items():
        stub, port = engine.stub(1)
        try:
            for title, goal, measure in (
                (f"idle connection ({IDLE_CONNECTIONS} of them)", 48, lambda arm: idle(engine, arm)),
                (f"busy connection ({BUSY_CONNECTIONS} of them, 1 MiB requests)", 320, lambda arm: busy(engine, arm, seconds)),
            ):
                arm = start(port, engine.folder)
                try:
                    rows.append(MemoryRow(title, name, measure(arm), "KiB", goal))
                finally:
                    arm.stop()
        finally:
            stub.stop()
    return rows


@click.command()
@click.option("--seconds", default=4.0, help="duration of each run")
@click.option("--runs", default=5)
@click.option("--load", "names", multiple=True, type=click.Choice(ROWS))
@click.option("--no-write", is_flag=True)
def main(seconds: float, runs: int, names: tuple[str, ...], no_write: bool) -> None:
    """Measure and print."""
    engine = TlsEngine()
    report = Report("tls")
    try:
        loads: list[CostLoad] = [replace(load, runs=runs) for load in LOADS if load.name in (names or ROWS)]
        rows = [measure_cost(engine, load, engine.starters(), seconds=seconds, warm_seconds=1, runs=runs, say=click.echo) for load in loads]
        memory = memory_rows(engine, seconds)
    finally:
        engine.close()
    missing = [] if "haproxy" in engine.starters() else ["- not installed here, so not measured: haproxy"]
    how = f"- {runs} runs of {seconds:g} s; Python peers; TLS 1.3 with ECDSA P-256 and no session tickets"
    report.add(*machine_lines(), how, *missing, "", *cost_table(rows), "")
    report.add(*memory_lines(memory))
    report.data["cost"] = [
        {"load": row.load.name, "microseconds": {name: cost.microseconds for name, cost in row.costs.items()}} for row in rows
    ]
    report.data["memory"] = [{"name": row.name, "proxy": row.proxy, "KiB": row.figure} for row in memory]
    click.echo(report.text())
    if not no_write:
        report.write(RESULTS)


if __name__ == "__main__":
    main()
