"""The release gate on records, connections and time: numbers 1 to 5 and 11 to 20, with real Apache Kafka where it can show them."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median

from bench.faults import rows_broker as fault_rows_broker
from bench.faults import rows_client as fault_rows_client
from bench.faults import rows_load as fault_rows_load
from bench.faults import rows_stores as fault_rows_stores
from bench.faults.tools import Client, ms
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine, rss_bytes
from bench.harness.frames import api_versions_request
from bench.harness.raw_client import Place, saturate
from bench.long_run import slope
from bench.soak.__main__ import soak
from tests.support.clients import confluent
from tests.support.clients.recorder import RecordingProducer, as_stored
from tests.support.clients.topics import new_topic
from tests.support.frames.wire import produce_frame
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.places import temporary_directory
from tests.support.processes.kills import PARTITIONS, Stretch, kill_often
from tests.support.processes.ledger import Ledger
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

CLIENT_ID = "gate"
KIB = 1024
STORED_S_MAX = 60


@dataclass(frozen=True, slots=True)
class Measured:
    """One of the twenty numbers, measured.

    Attributes:
        how: the broker and the load.
        low, high: the limits; a `low` of 0 is no limit.
    """

    number: int
    how: str
    value: float
    high: float
    unit: str
    low: float = 0.0

    @property
    def is_held(self) -> bool:
        """Whether the number is within its limits."""
        return self.low <= self.value <= self.high


@dataclass
class Stand:
    """Shared by the rows: brokers that are started once, and the length of the runs."""

    stack: ExitStack
    engine: Engine
    is_quick: bool = False
    _clusters: dict[str, KafkaCluster] = field(default_factory=dict)

    def kafka(self, version: str = KRAFT) -> KafkaCluster:
        """Return a broker of a version."""
        if version not in self._clusters:
            self._clusters[version] = self.stack.enter_context(KafkaCluster(version, name=f"gate-{version}"))
        return self._clusters[version]

    @contextmanager
    def sluice(self, bound: int | None = None, *, mode: str = "mute") -> Iterator[SluiceProcess]:
        """Start a Sluice in front of Kafka 4.3.1, with a produce quota for all clients if one is given."""
        with temporary_directory("gate") as directory:
            entries = [] if bound is None else [{"client-id": "<default>", "producer_byte_rate": bound}]
            quotas = write_quotas(directory / "quotas.toml", entries)
            with SluiceProcess(self.kafka().bootstrap, quotas=quotas, enforcement=mode, name="sluice-gate") as running:
                yield running


def delivery(stand: Stand) -> list[Measured]:
    """Numbers 1 to 4 and 20: SIGKILL under traffic of idempotent producers; records at the broker and every metering file are read."""
    versions, kills = ([KRAFT], 4) if stand.is_quick else ([KRAFT, ZOOKEEPER], 10)
    stretches: list[Stretch] = []
    for version, seed in itertools.product(versions, range(len(versions))):
        with temporary_directory("gate") as directory:
            bootstrap = stand.kafka(version).bootstrap
            topic = new_topic(bootstrap, "gate-delivery", partitions=PARTITIONS)
            stretches.append(kill_often(bootstrap, topic, directory, kills, seed, name="sluice-gate-killed"))
    records = sum(one.acknowledged for one in stretches)
    how = f"Kafka {' and '.join(versions)}, {kills * len(stretches)} kill -9, {records:,} idempotent records"

    def wrong(kind: str) -> int:
        return sum(one.problems.get(kind, 0) for one in stretches)

    decisions = sum(one.decisions for one in stretches)
    unreadable = sum(len(one.metering_problems) + one.uncounted for one in stretches)
    return [
        Measured(1, how, wrong("lost") + sum(one.failed_sends for one in stretches), 0, "lost"),
        Measured(2, how, wrong("duplicates"), 0, "twice"),
        Measured(3, how, wrong("out_of_order"), 0, "out of order"),
        Measured(4, how, wrong("corrupt") + wrong("foreign"), 0, "corrupt"),
        Measured(20, f"the same kills: {decisions:,} decisions, unreadable files or uncounted losses", unreadable, 0, "files"),
    ]


def closes_without_acks(stand: Stand) -> list[Measured]:
    """Number 5: 10,000 records with acks=0 and an orderly close, muted and not; then one connection that closes at once."""
    lost = 0
    count = 2_000 if stand.is_quick else 10_000
    for bound in (None, 40_000):
        with stand.sluice(bound) as sluice:
            topic, ledger = new_topic(stand.kafka().bootstrap, "gate-acks-0", partitions=PARTITIONS), Ledger()
            settings = {"client.id": CLIENT_ID, "acks": 0, "batch.size": 4_096, "linger.ms": 5}
            producer = RecordingProducer(ledger, sluice.bootstrap, topic, PARTITIONS, settings)
            producer.send(itertools.repeat(16, count))
            producer.finish()
            acknowledged = producer.acknowledged
            producer.close()
            lost += count - _stored(stand, topic, count)
            stored = as_stored(confluent.read_all(stand.kafka().bootstrap, topic, PARTITIONS))
            lost += sum(ledger.judge(acknowledged, stored).problems().values())
    return [Measured(5, f"Kafka {KRAFT}, librdkafka, acks=0 then close, 2 x {count:,} records, muted and not", lost, 0, "lost")]


def _stored(stand: Stand, topic: str, count: int) -> int:
    deadline = time.monotonic() + STORED_S_MAX
    while (stored := confluent.stored_count(stand.kafka().bootstrap, topic, PARTITIONS)) < count and time.monotonic() < deadline:
        time.sleep(0.2)
    return stored


RATE_BOUND, RATE_CONNECTIONS, RATE_BYTES = 500_000, 4, 10_000


def rate(stand: Stand) -> list[Measured]:
    """Number 11: the long-run rate of producers that always have more to send, in mute and in delay, k = 0.08."""
    seconds, settled = (60.0, 20.0) if stand.is_quick else (120.0, 30.0)
    topic = new_topic(stand.kafka().bootstrap, "gate-rate")
    with ExitStack() as stack:
        arms = [_arm(stand, stack, mode) for mode in ("mute", "delay")]

        async def load() -> list[list[tuple[float, float]]]:
            places = [Place(arm.port, CLIENT_ID, topic, RATE_BYTES) for arm in arms]
            runs = [saturate("produce", place, RATE_CONNECTIONS, seconds) for place in places]
            return [_running_sum([(at, size) for at, size, _ in one.samples]) for one in await asyncio.gather(*runs)]

        passed = asyncio.run(load())
    figures = []
    for mode, samples in zip(("mute", "delay"), passed, strict=True):
        ratio = slope([sample for sample in samples if sample[0] >= settled]) / RATE_BOUND
        how = f"Kafka {KRAFT}, {RATE_CONNECTIONS} producers in {mode}, seconds {settled:g} to {seconds:g}"
        figures.append(Measured(11, how, ratio, 1.05, "x quota", low=0.90))
    return figures


def _arm(stand: Stand, stack: ExitStack, mode: str) -> Arm:
    port = int(stand.kafka().bootstrap.rsplit(":", 1)[1])
    arm = start_sluice(port, stand.engine.folder, produce=RATE_BOUND, fetch=None, flags=["--enforcement", mode])
    stack.callback(arm.stop)
    return arm


def _running_sum(samples: list[tuple[float, int]]) -> list[tuple[float, float]]:
    total, sums = 0, []
    for at, size in sorted(samples):
        total += size
        sums.append((at, float(total)))
    return sums


def beside_greedy(stand: Stand) -> list[Measured]:
    """Number 12: the latency of a probe beside 8 clients with 500 requests in flight each (row F9), the median of three rounds."""
    rounds = [fault_rows_load.f9_neighbour(stand.engine.folder)[0].value for _ in range(3)]
    return [Measured(12, "row F9, stub broker: 8 clients with 500 requests in flight each, median of 3", median(rounds), 10, "ms")]


def long_load(stand: Stand) -> list[Measured]:
    """Numbers 13, 14 and 17: mixed load and faults with a real broker, and SIGTERM at the end."""
    seconds = 270.0 if stand.is_quick else 420.0
    done = soak(seconds, name="gate-soak")
    values = {(figure.row, figure.what): figure.value for figure in done.figures}
    how = f"Kafka {KRAFT}, mixed load and faults, {seconds:g} s (python -m bench.soak)"
    waited = values["loop", "longest that it was ready and had no CPU, within a second"]
    return [
        Measured(13, f"{how}; in a second without CPU for {waited:.0f} ms", values["loop", "longest lag of the event loop"], 250, "ms"),
        Measured(14, how, values["memory", "RSS slope after the beginning"], 1, "MiB/min", low=float("-inf")),
        Measured(14, f"{how}: descriptors left over", values["descriptors", "left over when all have gone"], 0, "", low=float("-inf")),
        Measured(17, f"{how}, then SIGTERM", values["end", "SIGTERM: ended after"], 10, "s"),
    ]


MUTED, MUTED_BOUND, MUTED_BYTES, HEADER_BYTES = 50, 20_000, 600_000, 64


def muted(stand: Stand) -> list[Measured]:
    """Number 15: 50 muted connections that send as much as the kernel accepts: Sluice's own count of buffered bytes, and its RSS."""
    topic = new_topic(stand.kafka().bootstrap, "gate-muted")
    buffered = 0.0
    with stand.sluice(MUTED_BOUND) as sluice, ExitStack() as stack:
        port = sluice.broker_port(next(iter(stand.kafka().nodes)))
        for number in range(MUTED):  # the process has its memory for large requests from here on
            with Client(port) as client:
                client.ask(_muting(topic, b"first-%d" % number))
        before = rss_bytes([sluice.pid])
        for number in range(MUTED):
            client = stack.enter_context(Client(port))
            frame = _muting(topic, b"muted-%d" % number)
            client.ask(frame)
            client.socket.settimeout(0.01)
            with_all_that_fits(client, frame)
        for _ in range(5):
            time.sleep(1.1)
            buffered = max(buffered, sluice.metric("kafka_sluice_buffered_bytes") / MUTED)
        resident = (rss_bytes([sluice.pid]) - before) / MUTED
    how = f"Kafka {KRAFT}, {MUTED} muted connections that go on sending"
    limit = 64 + HEADER_BYTES / KIB
    return [
        Measured(15, f"{how}: in Sluice's own buffers", buffered / KIB, limit, "KiB each"),
        Measured(15, f"{how}: growth of RSS", resident / KIB, limit, "KiB each", low=float("-inf")),
    ]


def _muting(topic: str, client_id: bytes) -> bytes:
    return produce_frame(topic, bytes(MUTED_BYTES), acks=1, client_id=client_id)


def with_all_that_fits(client: Client, frame: bytes) -> None:
    """Send until the kernel accepts no more."""
    try:
        while True:
            client.send(frame)
    except TimeoutError:
        return


def slow_writers(stand: Stand) -> list[Measured]:
    """Number 16: 1,000 connections that send a byte every five seconds (row D6)."""
    [gone, *_] = fault_rows_client.d6_slow_writers(stand.engine.folder)
    return [Measured(16, "row D6, stub broker: 1,000 connections, a byte every 5 s", gone.value, 15, "s")]


def drain(stand: Stand) -> list[Measured]:
    """Number 17: SIGTERM while answers are held (row G2), and while requests of librdkafka wait in front of a real broker."""
    figures = fault_rows_load.g2_sigterm_in_throttle(stand.engine.folder)
    took = next(figure.value for figure in figures if "one SIGTERM" in figure.what)
    with stand.sluice(MUTED_BOUND, mode="delay") as sluice:
        topic = new_topic(stand.kafka().bootstrap, "gate-drain", partitions=PARTITIONS)
        producer = RecordingProducer(Ledger(), sluice.bootstrap, topic, PARTITIONS, {"client.id": CLIENT_ID})
        producer.send(itertools.repeat(KIB, 2_000))
        while not sluice.metric("kafka_quota_throttled_requests_total"):
            producer.poll(0.05)
        began = time.monotonic()
        code = sluice.stop()
        real = time.monotonic() - began if code == 0 else float("inf")
        producer.close()
    return [
        Measured(17, "row G2, scripted broker: SIGTERM during a throttle", took, 10, "s"),
        Measured(17, f"Kafka {KRAFT}, librdkafka throttled in delay, SIGTERM", real, 10, "s"),
    ]


def resync(stand: Stand) -> list[Measured]:
    """Number 18: the ZooKeeper session expires while a value changes (row B3)."""
    kept, cycles = fault_rows_stores.CYCLES, 5 if stand.is_quick else 15
    fault_rows_stores.CYCLES = cycles
    try:
        [longest, _, missed, _] = fault_rows_stores.b3_sessions_expire(stand.engine.folder)
    finally:
        fault_rows_stores.CYCLES = kept
    value = longest.value / 1_000 if not missed.value else float("inf")
    return [Measured(18, f"row B3, ZooKeeper: {cycles} expired sessions with a change meanwhile, longest", value, 2, "s")]


LOSSES, WATCHERS = 3, 10


def upstream_lost(stand: Stand) -> list[Measured]:
    """Number 19: a broker that resets (row A1), and a real one that is killed under ten connections, three times."""
    resets = [figure.value for figure in fault_rows_broker.a1_broker_killed(stand.engine.folder) if "client sees" in figure.what]
    delays: list[float] = []
    with stand.sluice() as sluice:
        [node] = stand.kafka().nodes.values()
        for _ in range(1 if stand.is_quick else LOSSES):
            with ExitStack() as stack:
                clients = [stack.enter_context(Client(sluice.broker_port(node.node_id))) for _ in range(WATCHERS)]
                for client in clients:
                    client.ask(api_versions_request(2).whole())
                began = time.monotonic()
                node.process.kill()
                delays += [client.until_closed()[0] - began for client in clients]
            node.start()
    return [
        Measured(19, "row A1, scripted broker: RST before, in and after an answer, p99", max(resets), 200, "ms"),
        Measured(19, f"Kafka {KRAFT} killed under {WATCHERS} connections, slowest of {len(delays)}", ms(max(delays)), 200, "ms"),
    ]


ROWS: dict[Callable[[Stand], list[Measured]], tuple[int, ...]] = {
    delivery: (1, 2, 3, 4, 20),
    closes_without_acks: (5,),
    rate: (11,),
    beside_greedy: (12,),
    long_load: (13, 14),
    muted: (15,),
    slow_writers: (16,),
    drain: (17,),
    resync: (18,),
    upstream_lost: (19,),
}
