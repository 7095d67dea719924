"""What one core and some memory serve, in plain numbers for planning: python -m bench.cost.sizing [--seconds S] [--runs N].

Each row is measured without TLS and with it. A figure is what Sluice would do with a whole core: the work done, divided by the processor
time of all its processes. So load generator and stub broker, which share the machine, do not lower it. A quota is checked at each request,
and never exceeded.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from bench.cost.cost import LOADS, MIB, CostLoad, measure_slice
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine, rss_bytes
from bench.harness.report import Report, machine_lines
from bench.tls import TlsEngine, idle

RESULTS = Path(__file__).parents[1] / "results" / "cost"
MB = 1_000_000
WARM_SECONDS = 1.0
BY_NAME = {load.name: load for load in LOADS}


@dataclass(frozen=True, slots=True)
class Sized:
    """A row: `of` makes the figure from the requests that a core serves in a second."""

    title: str
    load: CostLoad
    unit: str
    of: Callable[[float], float] = float


ROWS = (
    Sized("Produce of 200 B, one in flight on each connection", BY_NAME["produce-200B-depth1"], "requests/s"),
    Sized("Produce of 200 B, sixteen in flight on each connection", BY_NAME["produce-200B-depth16"], "requests/s"),
    Sized("Produce of 1 MiB", BY_NAME["produce-1MB"], "MB/s", lambda requests: requests * MIB / MB),
    Sized("Fetch of 1 MiB", BY_NAME["fetch-1MB"], "MB/s", lambda requests: requests * MIB / MB),
    Sized("new connections with one request each", BY_NAME["churn"], "connections/s"),
    Sized(
        "open connections that send 2 requests/s each",
        BY_NAME["conns-1000"],
        "connections",
        lambda requests: requests * BY_NAME["conns-1000"].conns / BY_NAME["conns-1000"].rate,
    ),
)


def per_core(engine: Engine, start: Callable[[int, Path], Arm], row: Sized, seconds: float, runs: int) -> list[float]:
    """Return the figure of each run."""
    stub, port = engine.stub(row.load.fetch_record_bytes)
    with ExitStack() as stack:
        stack.callback(stub.stop)
        arm = start(port, engine.folder)
        stack.callback(arm.stop)
        costs_us = [measure_slice(engine, row.load, arm, seconds, WARM_SECONDS)[0] for _ in range(runs)]
    return [row.of(1e6 / cost_us) for cost_us in costs_us]


def memory_mib(engine: TlsEngine, start: Callable[[int, Path], Arm], *, tls: bool) -> tuple[float, float]:
    """Return the resident memory at the start, and what 1,000 idle connections add, in MiB."""
    stub, port = engine.stub(1)
    with ExitStack() as stack:
        stack.callback(stub.stop)
        arm = start(port, engine.folder)
        stack.callback(arm.stop)
        if not tls:
            engine.plain_ports.add(arm.port)
        time.sleep(1)
        at_start = rss_bytes(arm.pids()) / MIB
        return at_start, idle(engine, arm) * 1_000 / 1_024


@click.command()
@click.option("--seconds", default=4.0, show_default=True, help="duration of each run")
@click.option("--runs", default=5, show_default=True, help="runs of each row, of which the median is printed")
@click.option("--no-write", is_flag=True, help="print only")
def main(seconds: float, runs: int, no_write: bool) -> None:
    """Measure and print."""
    report = Report("sizing")
    report.add(*machine_lines(), f"- medians of {runs} runs of {seconds:g} s, one process, a quota on every request", "")
    report.add("| One core serves | without TLS | with TLS | |", "|---|--:|--:|---|")
    plain, tls = Engine(), TlsEngine()
    arms: list[tuple[str, Engine, Callable[[int, Path], Arm]]] = [("plain", plain, start_sluice), ("tls", tls, tls.starters()["sluice"])]
    try:
        for row in ROWS:
            figures = {name: per_core(engine, start, row, seconds, runs) for name, engine, start in arms}
            report.data[row.load.name] = figures
            shown = [f"{median(found):,.0f}" for found in figures.values()]
            click.echo(f"{row.title}: {', '.join(shown)} {row.unit}")
            report.add(f"| {row.title} | {shown[0]} | {shown[1]} | {row.unit} |")
        memory = [memory_mib(tls, start, tls=name == "tls") for name, _, start in arms]
    finally:
        plain.close()
        tls.close()
    report.add("", "| Memory | without TLS | with TLS | |", "|---|--:|--:|---|")
    for at, title in enumerate(("at the start, with an admin port", "for 1,000 idle connections")):
        report.add(f"| {title} | {memory[0][at]:.0f} | {memory[1][at]:.0f} | MiB |")
    report.data["memory_mib"] = memory
    click.echo("\n" + report.text())
    if not no_write:
        report.write(RESULTS)


if __name__ == "__main__":
    main()
