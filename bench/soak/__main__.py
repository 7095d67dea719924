"""Sluice under mixed load and faults for an hour: memory does not grow, no descriptor and no record is lost, every decision is in the
files.

python -m bench.soak [--minutes 60] [--no-write]

Apache Kafka 4.3.1 is behind one Sluice with metering. Two idempotent producers, one over its quota, and the reader of a group run all the
time; two threads of short-lived connections make ten a second, well-behaved or not, and up to 200 connections stay idle. Every 15 s there
is a fault: changed quotas, an invalid quota file, a broker that hangs for 2 s, 50 scrapes in a row, a broker that is killed and restarted.
Sluice's resident memory and descriptors are sampled once a second. When all clients have closed, the number of descriptors must be that
before they connected.
"""

import argparse
import gc
import itertools
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.faults.tools import MIB, Figure, ms
from bench.harness.engine import ROOT, rss_bytes
from bench.harness.report import Report, machine_lines
from bench.long_run import slope
from bench.soak.load import Faults, Reader, Visitors, Worker, start_workers, write_bounds
from pipeline.manifest import find_manifests, problems_of
from pipeline.validation.local import validate
from tests.support.clients import confluent
from tests.support.clients.recorder import as_stored
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.places import temporary_directory
from tests.support.processes.kills import PARTITIONS, Traffic
from tests.support.processes.sluice_process import SluiceProcess

SETTLED_S_MIN, SETTLED_SHARE = 120.0, 0.1
"""The load allocates its memory in the first tenth: idle connections accumulate for two minutes, and each fault occurs once."""
SAMPLE_S, SCRAPE_S = 1.0, 10.0
BURST, PAUSE_S = 2, 0.05
GONE_S_MAX = 60.0
VISITOR_ROWS = 2
CONFIG = '[metering]\ndir = "metering"\nproxy_id = "edge-1"\nrotate_seconds = 60\n[quotas]\nwindow_num = 3\n'
HEAD = ["| | figure | measured | passes at | |", "|---|---|--:|--:|---|"]


@dataclass
class Watched:
    """Samples of one process.

    Attributes:
        memory, descriptors: (second, bytes), (second, number).
        waits_ns: how long it was ready without a CPU, since its start.
        lag_s: the longest lag of its event loop.
    """

    memory: list[tuple[float, float]] = field(default_factory=list)
    descriptors: list[tuple[float, int]] = field(default_factory=list)
    waits_ns: list[int] = field(default_factory=list)
    lag_s: float = 0.0
    buffered_bytes: float = 0.0

    def growth(self, seconds: float) -> float:
        """Return MiB per minute, the slope of the straight line through all samples after the first part."""
        settled = max(SETTLED_S_MIN, seconds * SETTLED_SHARE)
        return slope([sample for sample in self.memory if sample[0] >= settled]) * 60 / MIB


def descriptors(sluice: SluiceProcess) -> int:
    """Return the number of open descriptors of the process."""
    return len(list(Path(f"/proc/{sluice.pid}/fd").iterdir()))


def waited_ns(sluice: SluiceProcess) -> int:
    """Return how long its first thread, which runs the loop, was ready while another process had the CPU."""
    return int(Path(f"/proc/{sluice.pid}/schedstat").read_text().split()[1])


def watch(sluice: SluiceProcess, workers: list[Worker], seconds: float) -> Watched:
    """Sample once a second.

    Raises:
        RuntimeError: Sluice, or a part of the load, ended.
    """
    seen, start, scraped = Watched(), time.monotonic(), 0.0
    while (now := time.monotonic() - start) < seconds:
        for worker in workers:
            if worker.failure is not None:
                raise RuntimeError("a part of the load ended") from worker.failure
        if sluice.exit_code is not None:
            raise RuntimeError(f"Sluice ended with {sluice.exit_code}")
        seen.memory.append((now, float(rss_bytes([sluice.pid]))))
        seen.descriptors.append((now, descriptors(sluice)))
        seen.waits_ns.append(waited_ns(sluice))
        if now - scraped > SCRAPE_S:
            scraped = now
            seen.lag_s = max(seen.lag_s, sluice.metric("kafka_sluice_loop_lag_max_seconds"))
            seen.buffered_bytes = max(seen.buffered_bytes, sluice.metric("kafka_sluice_buffered_bytes"))
        time.sleep(SAMPLE_S)
    return seen


@dataclass
class Soaked:
    """A soak and its figures."""

    watched: Watched
    figures: list[Figure]


def soak(seconds: float, *, name: str = "soak") -> Soaked:
    """Run the load for the given time, let all clients close, check the totals."""
    with ExitStack() as stack:
        directory = stack.enter_context(temporary_directory(name))
        kafka = stack.enter_context(KafkaCluster(KRAFT, name=name))
        [node] = kafka.nodes.values()
        topic, noise = new_topic(kafka.bootstrap, "soak", partitions=PARTITIONS), new_topic(kafka.bootstrap, "noise")
        quotas, config = directory / "quotas.toml", directory / "sluice.toml"
        write_bounds(quotas, BURST)
        config.write_text(CONFIG)
        sluice = SluiceProcess(
            kafka.bootstrap, quotas=quotas, enforcement="mute", arguments=("--config", str(config)), name=f"sluice-{name}"
        )
        stack.callback(sluice.kill)
        sluice.start()
        before = _quiet(sluice)
        traffic, reader = Traffic(sluice.bootstrap, topic, burst=BURST, pause_s=PAUSE_S), Reader(sluice.bootstrap, topic)
        visitors = [Visitors(sluice.broker_port(node.node_id), noise, seed) for seed in range(VISITOR_ROWS)]
        faults = Faults(sluice, node, quotas)
        workers = start_workers(traffic, reader, visitors, faults)
        try:
            watched = watch(sluice, workers, seconds)
        finally:
            for worker in workers:
                worker.stop()
        figures = _memory_figures(watched, seconds)
        sends_left = _leave(traffic, reader, visitors)
        figures += _left_figures(sluice, before)
        figures += _end_figures(sluice, faults, visitors, reader)
        stored = as_stored(confluent.read_all(kafka.bootstrap, topic, PARTITIONS))
        figures += _record_figures(traffic, stored, sends_left)
        figures += _metering_figures(directory / "metering")
        return Soaked(watched, figures)


def _quiet(sluice: SluiceProcess) -> int:
    """Return the number of descriptors of a Sluice without connections."""
    sluice.get("/metrics")
    time.sleep(2)
    return descriptors(sluice)


def _leave(traffic: Traffic, reader: Reader, visitors: list[Visitors]) -> int:
    """Let all clients close; return how many records have no successful response."""
    deadline = time.monotonic() + 2 * GONE_S_MAX
    while traffic.in_flight and time.monotonic() < deadline:
        for producer in traffic.producers:
            producer.poll(0.05)
    left = traffic.in_flight + sum(len(producer.failed) for producer in traffic.producers)
    for producer in traffic.producers:
        producer.close()
    gc.collect()
    reader.close()
    for visitor in visitors:
        visitor.close()
    return left


def _memory_figures(watched: Watched, seconds: float) -> list[Figure]:
    first, last = watched.memory[0][1], watched.memory[-1][1]
    return [
        Figure("memory", "RSS slope after the beginning", watched.growth(seconds), 1, "MiB/min"),
        Figure("memory", "RSS at the first look", first / MIB, None, "MiB"),
        Figure("memory", "RSS at the last", last / MIB, None, "MiB"),
        Figure("memory", "highest RSS", max(value for _, value in watched.memory) / MIB, None, "MiB"),
        Figure("memory", "most bytes in Sluice's own buffers", watched.buffered_bytes / MIB, None, "MiB"),
        Figure("loop", "longest lag of the event loop", ms(watched.lag_s), 250, "ms"),
        Figure("loop", "longest that it was ready and had no CPU, within a second", longest_wait_ms(watched), None, "ms"),
        Figure("descriptors", "most at once", max(value for _, value in watched.descriptors), None, ""),
    ]


def longest_wait_ms(watched: Watched) -> float:
    """Return the largest wait between two samples: a lag that is no longer than this comes from the machine."""
    return max((after - before for before, after in itertools.pairwise(watched.waits_ns)), default=0) / 1e6


def _left_figures(sluice: SluiceProcess, before: int) -> list[Figure]:
    deadline = time.monotonic() + GONE_S_MAX
    while time.monotonic() < deadline and not _is_empty(sluice, before):
        time.sleep(1)
    return [
        Figure("descriptors", "left over when all have gone", descriptors(sluice) - before, 0, ""),
        Figure("descriptors", "connections still open then", sluice.metric("kafka_sluice_connections_open"), 0, ""),
        Figure("memory", "bytes in Sluice's own buffers then", sluice.metric("kafka_sluice_buffered_bytes"), 0, "bytes"),
    ]


def _is_empty(sluice: SluiceProcess, before: int) -> bool:
    gauges = ("kafka_sluice_connections_open", "kafka_sluice_buffered_bytes")
    return not any(sluice.metric(name) for name in gauges) and descriptors(sluice) <= before


def _end_figures(sluice: SluiceProcess, faults: Faults, visitors: list[Visitors], reader: Reader) -> list[Figure]:
    errors = sluice.metric("kafka_sluice_internal_errors_total")
    began = time.monotonic()
    code = sluice.stop()
    return [
        Figure("load", "faults", faults.count, None, ""),
        Figure("load", "visits", sum(visitor.visits for visitor in visitors), None, ""),
        Figure("load", "records read through Sluice", reader.records, None, ""),
        Figure("errors", "of Sluice itself", errors, 0, ""),
        Figure("end", "SIGTERM: ended after", time.monotonic() - began, 10, "s"),
        Figure("end", "exit code", abs(code), 0, ""),
    ]


def _record_figures(traffic: Traffic, stored: list, left: int) -> list[Figure]:  # type: ignore[type-arg]
    acknowledged = [entry for producer in traffic.producers for entry in producer.acknowledged]
    problems = traffic.ledger.judge(acknowledged, stored).problems()
    kinds = {"lost": "lost", "duplicates": "stored twice", "out_of_order": "out of order", "corrupt": "corrupt"}
    return [
        Figure("records", "acknowledged", len(acknowledged), None, ""),
        *[Figure("records", text, problems.get(kind, 0), 0, "") for kind, text in kinds.items()],
        Figure("records", "without a good answer", left, 0, ""),
    ]


def _metering_figures(directory: Path) -> list[Figure]:
    manifests = find_manifests(directory)
    verdict = validate(directory)
    return [
        Figure("metering", "decisions in the files", verdict.decisions + verdict.unjudged, None, ""),
        Figure("metering", "lost, of a run that ended in order", verdict.dropped, 0, ""),
        Figure("metering", "divergences", sum(verdict.kinds().values()), 0, ""),
        Figure("metering", "files that cannot be read", sum(len(problems_of(directory, one)) for one in manifests), 0, ""),
    ]


def main() -> int:
    """Run the soak; return 1 when a figure misses its limit."""
    options = _options()
    seconds = options.minutes * 60
    done = soak(seconds)
    lines = [*HEAD, *[figure.line() for figure in done.figures]]
    report = Report("soak")
    report.add(*machine_lines(), f"- Apache Kafka {KRAFT}, {options.minutes:g} minutes", "", *lines)
    report.data["minutes"] = options.minutes
    report.data["figures"] = [{name: getattr(figure, name) for name in Figure.__slots__} for figure in done.figures]
    report.data["rss_bytes"] = [[round(at), value] for at, value in done.watched.memory[:: round(SCRAPE_S / SAMPLE_S)]]
    report.data["descriptors"] = [[round(at), value] for at, value in done.watched.descriptors[:: round(SCRAPE_S / SAMPLE_S)]]
    print(report.text())
    if not options.no_write:
        report.write(options.out)
    return int(any(figure.verdict == "miss" for figure in done.figures))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "faults")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
