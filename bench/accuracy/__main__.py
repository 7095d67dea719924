"""Does a client get the same rate under Sluice's quota as under the broker's own? The same load runs against both.

python -m bench.accuracy [--seconds 60] [--connections 1 16 64] [--kind produce fetch] [--modes mute delay] [--obey] [--no-write]
python -m bench.accuracy --workers 1,2,4 [--modes mute] [...]   the same with so many worker processes, beside one process
python -m bench.accuracy --quota request [--seconds 40] [--rounds 2] [--modes mute delay] [--no-write]   see bench/accuracy/request.py

The runs of a cell (the broker, Sluice in mute, Sluice in delay) are concurrent, on one broker, each with a client-id of its own: at the
quota they leave the machine nearly idle. Needs a JDK and Maven (see tests/support/kafka).
"""

import argparse
import asyncio
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.accuracy import request as request_accuracy
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import ROOT, Engine
from bench.harness.raw_client import Passed, Place, preload, saturate
from bench.harness.report import Report, machine_lines
from bench.options import numbers
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic, set_client_quota

BOUND = 1_000_000
PRODUCE_BYTES, FETCH_BYTES = 100_000, 1_000_000
PRELOADED_BATCHES, PRELOADED_BATCH_BYTES = 320, 100_000
BURST_SECONDS = 15
"""Slightly more than the quota's window: the steady figure leaves out the burst of the first ten seconds."""
GOALS = {("produce", "mute"): 0.03, ("produce", "delay"): 0.05}
QUOTA_KEYS = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
BROKER = "broker"
WORST_SECONDS = 10
READ_BEFORE_SECONDS = 0.1


@dataclass
class Cell:
    """One load under one enforcer."""

    kind: str
    connections: int
    enforcer: str
    """BROKER, or the mode of a Sluice, with the number of workers if there are several."""
    passed: Passed
    seconds: float
    reached_bytes: float | None = None
    """Produced bytes that the broker had answered at the end of the run, as Sluice counts them: in `delay` the clients do not know all
    of them, since answers are held for up to five seconds. None: the clients' own count is complete."""

    @property
    def ratio(self) -> float:
        """rate / bound over the whole run, the burst included."""
        if self.reached_bytes is not None:
            return self.reached_bytes / self.seconds / BOUND
        return self.passed.rate(0, self.seconds) / BOUND

    @property
    def steady_ratio(self) -> float | None:
        """rate / bound after the burst. It is shown and not judged, since it depends on a few long waves."""
        return self.passed.rate(BURST_SECONDS, self.seconds) / BOUND if self.seconds > 2 * BURST_SECONDS else None

    @property
    def worst_ratio(self) -> float:
        """rate / bound in the ten seconds after the burst in which most passed, or over a whole run that is shorter."""
        ends = range(BURST_SECONDS + WORST_SECONDS, int(self.seconds) + 1)
        return max((self.passed.rate(end - WORST_SECONDS, end) / BOUND for end in ends), default=self.ratio)


def enforcer_of(mode: str, workers: int) -> str:
    """Return the name of a Sluice in the column of enforcers."""
    return mode if workers == 1 else f"{mode}, {workers} workers"


def mode_of(enforcer: str) -> str:
    """Return the mode of a Sluice, or BROKER."""
    return enforcer.split(",")[0]


def beside_one_process(cell: Cell, one: Cell | None) -> str:
    """Return the rates of several workers over those of one process: of the whole run, and of the worst ten seconds."""
    if one is None or one is cell:
        return ""
    return f"{cell.ratio / one.ratio:.3f}; {cell.worst_ratio / one.worst_ratio:.3f}"


def verdict(cell: Cell, broker: Cell) -> tuple[str, str]:
    """Return (goal, "ok" or "miss") of a cell, compared with the broker's own figure."""
    if cell.kind == "produce":
        allowed = GOALS["produce", mode_of(cell.enforcer)]
        off = cell.ratio / broker.ratio - 1
        return f"broker's +-{allowed:.0%}", f"{off:+.1%} " + ("ok" if abs(off) <= allowed else "miss")
    reference = max(broker.ratio, 1.0)
    share = cell.ratio / reference
    return "0.9 - 1.1 x max(broker's, 1)", f"{share:.2f} " + ("ok" if 0.9 <= share <= 1.1 else "miss")


async def run_cells(arms: dict[str, Arm], kind: str, connections: int, seconds: float, *, obey: bool) -> list[Cell]:
    """Run one load under all enforcers at the same time."""
    size = PRODUCE_BYTES if kind == "produce" else FETCH_BYTES
    runs, reaching = [], []
    for enforcer, arm in arms.items():
        place = Place(arm.port, client_id(kind, connections, enforcer), f"accuracy-{kind}", size, obey)
        runs.append(saturate(kind, place, connections, seconds))
        reaching.append(reached(arm, place.client_id, seconds) if kind == "produce" and mode_of(enforcer) == "delay" else nothing())
    passed = asyncio.gather(*runs)
    reached_bytes = await asyncio.gather(*reaching)
    return [
        Cell(kind, connections, enforcer, one, seconds, bytes_there)
        for enforcer, one, bytes_there in zip(arms, await passed, reached_bytes, strict=True)
    ]


async def reached(arm: Arm, client: str, seconds: float) -> float | None:
    """Read what Sluice has counted for a client just before the run ends."""
    await asyncio.sleep(seconds - READ_BEFORE_SECONDS)
    return await asyncio.to_thread(arm.metric, "kafka_quota_bytes_total", f'client_id="{client}"', 'direction="produce"')


async def nothing() -> None:
    """Return None: the clients' own count is complete."""


def client_id(kind: str, connections: int, enforcer: str) -> str:
    """Return the client-id of a cell; each run has its own group."""
    return f"{kind}-{connections}-{enforcer.replace(', ', '-').replace(' ', '-')}"


def table(cells: list[Cell]) -> list[str]:
    """Return all cells in Markdown, each enforcer beside the broker."""
    lines = [
        "| load | connections | enforcer | rate / bound | after the burst | worst 10 s after it | over one process: whole run; worst 10 s "
        "| longest throttle time announced | disconnects | goal | |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    broker = {(cell.kind, cell.connections): cell for cell in cells if cell.enforcer == BROKER}
    single = {(cell.kind, cell.connections, cell.enforcer): cell for cell in cells}
    for cell in cells:
        goal, said = ("", "") if cell.enforcer == BROKER else verdict(cell, broker[cell.kind, cell.connections])
        steady = "" if cell.steady_ratio is None else f"{cell.steady_ratio:.3f}"
        beside = beside_one_process(cell, single.get((cell.kind, cell.connections, mode_of(cell.enforcer))))
        reported = f"{cell.passed.throttle_ms_max:,} ms"
        lines.append(
            f"| {cell.kind} | {cell.connections} | {cell.enforcer} | {cell.ratio:.3f} | {steady} | {cell.worst_ratio:.3f} "
            f"| {beside} | {reported} | {cell.passed.disconnects} "
            f"| {goal} | {said} |"
        )
    return lines


def main() -> int:
    """Run all cells; return 1 when a goal was missed."""
    options = _options()
    if options.quota == "request":
        return request_accuracy.run(options)
    with ExitStack() as stack:
        cells = _run(options, stack)
    report = Report("accuracy" if options.workers == [1] else "accuracy-workers")
    bound = f"- Apache Kafka {KRAFT}, bound {BOUND:,} B/s, {options.seconds:g} s each; produce {PRODUCE_BYTES:,} B, fetch {FETCH_BYTES:,} B"
    obeys = "obey throttle_time_ms" if options.obey else "ignore throttle_time_ms"
    note = [f"- {options.note}"] if options.note else []
    report.add(*machine_lines(), f"{bound}; one request in flight; clients {obeys}", *note, "", *table(cells))
    report.data["cells"] = [vars(cell) | {"ratio": cell.ratio, "passed": len(cell.passed.samples)} for cell in cells]
    print("\n" + report.text())
    if not options.no_write:
        report.write(options.out)
    return int(any(line.endswith("miss |") for line in table(cells)))


def _run(options: argparse.Namespace, stack: ExitStack) -> list[Cell]:
    engine = Engine()
    stack.callback(engine.close)
    cluster = stack.enter_context(KafkaCluster(KRAFT, name="accuracy", settings={"log.retention.bytes": 2_000_000_000}))
    broker_port = int(cluster.bootstrap.rsplit(":", 1)[1])
    with JavaTools(KRAFT) as tools:
        for kind in options.kind:
            create_topic(tools, cluster.bootstrap, f"accuracy-{kind}")
            for connections in options.connections:
                set_client_quota(tools, cluster.bootstrap, client_id(kind, connections, BROKER), **{QUOTA_KEYS[kind]: BOUND})
    arms = {BROKER: Arm(BROKER, None, broker_port)}
    for mode in options.modes:
        for workers in options.workers:
            flags = ["--enforcement", mode, "--workers", str(workers)]
            arm = start_sluice(broker_port, engine.folder, produce=BOUND, fetch=BOUND, flags=flags)
            stack.callback(arm.stop)
            arms[enforcer_of(mode, workers)] = arm
    if "fetch" in options.kind:
        asyncio.run(preload(broker_port, "accuracy-fetch", PRELOADED_BATCHES, PRELOADED_BATCH_BYTES))
    cells: list[Cell] = []
    for kind in options.kind:
        for connections in options.connections:
            print(f"{kind}, {connections} connections", flush=True)
            cells += asyncio.run(run_cells(arms, kind, connections, options.seconds, obey=options.obey))
            print("\n".join(table(cells)[-len(arms) :]), flush=True)
    return cells


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--quota", choices=["bytes", "request"], default="bytes", help="the quota type")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=2, help="for --quota request: runs of each load under each enforcer")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--kind", nargs="+", choices=["produce", "fetch"], default=["produce", "fetch"])
    parser.add_argument("--modes", nargs="*", choices=["mute", "delay"], default=["mute", "delay"])
    parser.add_argument("--workers", type=numbers, default=[1], help="numbers of worker processes, such as 1,2,4; all run at once")
    parser.add_argument("--note", default="", help="a note for the result, such as other load of the machine")
    parser.add_argument("--obey", action="store_true", help="clients wait for throttle_time_ms, as Java clients do")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "accuracy")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
