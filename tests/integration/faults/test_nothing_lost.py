"""Stored records equal acknowledged and consumed ones, byte for byte and in order: plain, throttled, across a restart, with acks=0."""

import itertools
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import TARGETS, Target
from tests.support.clients import confluent
from tests.support.clients.recorder import IDEMPOTENT, RecordingProducer, as_stored
from tests.support.frames.wire import WireConnection, produce_frame
from tests.support.places import temporary_directory
from tests.support.processes.ledger import OVERHEAD_BYTES, Entry, Ledger, order_free_hash
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.long

BODY_BYTES = 512
MIXED_SIZES = (0, 1, 100, 1_024, 16_384, 900 * 1_024)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENT_ID = "nothing-lost"
THROTTLED_BYTES_PER_SECOND = 500_000
"""The sum of all brokers; each has a quota of its own, as in Kafka."""
THROTTLED_RECORDS = 8_000
"""Enough for the bounds to change for eight seconds; librdkafka keeps a core busy while idempotent batches wait."""
FEW_WINDOWS = 3


@pytest.fixture
def quotas() -> Iterator[Path]:
    """Return the path of a quota file."""
    with temporary_directory("quotas") as directory:
        yield directory / "quotas.toml"


def _settings(**more: object) -> dict[str, object]:
    return {**IDEMPOTENT, "client.id": CLIENT_ID, **more}


def _check(ledger: Ledger, producer: RecordingProducer, target: Target, sluice: SluiceProcess, topic: str) -> None:
    """Assert that exactly the acknowledged records are stored, and that a consumer through Sluice reads the same bytes."""
    stored = as_stored(confluent.read_all(target.bootstrap, topic, target.partitions))
    assert ledger.judge(producer.acknowledged, stored).problems() == {}
    assert len(stored) == len(producer.acknowledged)
    through = as_stored(confluent.read_all(sluice.bootstrap, topic, target.partitions))
    assert order_free_hash(through) == order_free_hash(stored)


def test_plain(target: Target) -> None:
    """R1: an idempotent producer with five requests in flight loses, duplicates and reorders nothing."""
    topic, ledger = target.topic("plain"), Ledger()
    with SluiceProcess(target.bootstrap, name="sluice-plain") as sluice:
        producer = RecordingProducer(ledger, sluice.bootstrap, topic, target.partitions, _settings())
        producer.send(itertools.repeat(BODY_BYTES, target.records))
        producer.finish()
        assert len(producer.acknowledged) == target.records
        _check(ledger, producer, target, sluice, topic)


def test_all_sizes_and_codecs(target: Target) -> None:
    """R1: records of 0 bytes to 900 KiB in batches of every codec are neither lost, duplicated nor reordered."""
    topic, ledger = target.topic("mixed"), Ledger()
    sizes = random.Random(11)
    with SluiceProcess(target.bootstrap, name="sluice-mixed") as sluice:
        for number, codec in enumerate(CODECS, start=1):
            settings = _settings(**{"compression.type": codec})
            producer = RecordingProducer(ledger, sluice.bootstrap, topic, target.partitions, settings, number)
            producer.send(sizes.choices(MIXED_SIZES, weights=(4, 4, 4, 4, 2, 1), k=60))
            producer.finish()
            assert len(producer.acknowledged) == 60
        stored = as_stored(confluent.read_all(target.bootstrap, topic, target.partitions))
        assert ledger.judge([], stored).problems() == {}
        assert len(stored) == 60 * len(CODECS)
        assert order_free_hash(as_stored(confluent.read_all(sluice.bootstrap, topic, target.partitions))) == order_free_hash(stored)


@pytest.mark.parametrize("target", TARGETS[:2], indirect=True)
def test_throttled_with_a_quota_that_flips(target: Target, quotas: Path) -> None:
    """R2: under a quota that changes tenfold each second no record is lost, and no more passes than the higher bound allows.

    After a change to a tenth of the bound the bytes already counted cause a throttle of nine windows. With eleven windows of a second that
    would exceed the 60 s that librdkafka waits for an answer; the mock stores the records that are sent again twice. So the test has three
    windows.
    """
    topic, ledger = target.topic("throttled"), Ledger()
    high = THROTTLED_BYTES_PER_SECOND // target.brokers
    bounds = itertools.cycle((high, high // 10))
    _write_bound(quotas, high)
    config = quotas.with_name("sluice.toml")
    config.write_text(f"[quotas]\nwindow_num = {FEW_WINDOWS}\n")
    with SluiceProcess(target.bootstrap, quotas=quotas, arguments=("--config", str(config)), name="sluice-throttled") as sluice:
        producer = RecordingProducer(ledger, sluice.bootstrap, topic, target.partitions, _settings(**{"batch.size": 32_768}))
        started = time.monotonic()
        producer.send(itertools.repeat(BODY_BYTES, THROTTLED_RECORDS))
        while producer.waiting() and time.monotonic() - started < 8:
            _write_bound(quotas, next(bounds))
            sluice.send(signal.SIGHUP)
            producer.poll(1.0)
        _write_bound(quotas, high)
        sluice.send(signal.SIGHUP)
        producer.finish()
        elapsed = time.monotonic() - started
        sent_bytes = THROTTLED_RECORDS * (BODY_BYTES + OVERHEAD_BYTES)
        assert len(producer.acknowledged) == THROTTLED_RECORDS
        assert elapsed >= sent_bytes / THROTTLED_BYTES_PER_SECOND - FEW_WINDOWS - 1  # the first burst, and one batch for each broker
        _check(ledger, producer, target, sluice, topic)


def _write_bound(path: Path, bound: int) -> None:
    write_quotas(path, [{"client-id": CLIENT_ID, "producer_byte_rate": bound}])


def test_sigterm_and_restart_in_mid_run(target: Target) -> None:
    """A producer that continues while Sluice drains and restarts, twice, loses, duplicates and reorders nothing.

    The mock stores a repeated batch twice, so there the test also shows that the drain leaves no request unanswered.
    """
    _end_and_restart(target, signal.SIGTERM, exit_code=0)


def test_sigkill_and_restart_in_mid_run(real_target: Target) -> None:
    """An idempotent producer that continues while Sluice is killed and restarted, twice, loses, duplicates and reorders nothing."""
    _end_and_restart(real_target, signal.SIGKILL, exit_code=-signal.SIGKILL)


def _end_and_restart(target: Target, number: signal.Signals, *, exit_code: int) -> None:
    topic, ledger = target.topic(f"restarted-{number}"), Ledger()
    with SluiceProcess(target.bootstrap, name="sluice-restarted") as sluice:
        producer = RecordingProducer(ledger, sluice.bootstrap, topic, target.partitions, _settings())
        for _ in range(2):
            before = len(producer.acknowledged)
            producer.send(itertools.repeat(BODY_BYTES, 10_000))
            _wait_for_answers(producer, before + 5_000)
            sluice.send(number)
            producer.send(itertools.repeat(BODY_BYTES, 5_000))
            assert sluice.wait() == exit_code
            sluice.start()
        producer.finish()
        assert len(producer.acknowledged) == 30_000
        _check(ledger, producer, target, sluice, topic)


def test_restart_while_answers_are_held(target: Target, quotas: Path) -> None:
    """SIGTERM releases throttled answers within the drain, and nothing is lost, duplicated or reordered."""
    topic, ledger = target.topic("held"), Ledger()
    _write_bound(quotas, 20_000)
    with SluiceProcess(target.bootstrap, quotas=quotas, enforcement="delay", name="sluice-held") as sluice:
        producer = RecordingProducer(ledger, sluice.bootstrap, topic, target.partitions, _settings(**{"batch.size": 16_384}))
        producer.send(itertools.repeat(BODY_BYTES, 4_000))
        deadline = time.monotonic() + 60
        while sluice.metric("kafka_quota_throttled_requests_total", client_id=CLIENT_ID) < 1:
            producer.poll(0.05)
            assert time.monotonic() < deadline
        assert producer.waiting() > 0
        write_quotas(quotas, [])
        assert sluice.stop() == 0
        sluice.start()
        producer.finish()
        assert len(producer.acknowledged) == 4_000
        _check(ledger, producer, target, sluice, topic)


def _wait_for_answers(producer: RecordingProducer, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(producer.acknowledged) < count:
        producer.poll(0.05)
        assert time.monotonic() < deadline, f"{len(producer.acknowledged)} of {count} answers"


@pytest.mark.parametrize("bound", [None, 40_000], ids=["unlimited", "muted"])
def test_acks_0_then_close(real_target: Target, quotas: Path, bound: int | None) -> None:
    """R7: when a client closes after 10,000 records with acks=0, all of them are stored, also if the client was muted meanwhile."""
    topic, ledger = real_target.topic("acks-0"), Ledger()
    write_quotas(quotas, [{"client-id": CLIENT_ID, "producer_byte_rate": bound}] if bound else [])
    with SluiceProcess(real_target.bootstrap, quotas=quotas, name="sluice-acks-0") as sluice:
        settings = {"client.id": CLIENT_ID, "acks": 0, "batch.size": 4_096, "linger.ms": 5}
        producer = RecordingProducer(ledger, sluice.bootstrap, topic, real_target.partitions, settings)
        producer.send(itertools.repeat(16, 10_000))
        producer.finish()
        acknowledged = producer.acknowledged
        del producer
        _wait_for_stored(real_target, topic, 10_000)
    stored = as_stored(confluent.read_all(real_target.bootstrap, topic, real_target.partitions))
    assert ledger.judge(acknowledged, stored).problems() == {}
    assert len(stored) == 10_000


def test_acks_0_then_sigterm(real_target: Target) -> None:
    """R7: records with acks=0 that Sluice has read are stored, also when SIGTERM follows at once."""
    topic, ledger = real_target.topic("acks-0-sigterm"), Ledger()
    entries = [Entry(1, 0, number) for number in range(2_000)]
    with SluiceProcess(real_target.bootstrap, name="sluice-acks-0-sigterm") as sluice, WireConnection(sluice.bootstrap) as connection:
        connection.send(b"".join(produce_frame(topic, ledger.value(entry, 16), acks=0) for entry in entries))
        deadline = time.monotonic() + 60
        while sluice.metric("kafka_quota_requests_total", api="Produce") < len(entries):
            assert time.monotonic() < deadline
        assert sluice.stop() == 0
    _wait_for_stored(real_target, topic, len(entries))
    stored = as_stored(confluent.read_all(real_target.bootstrap, topic, real_target.partitions))
    assert ledger.judge(entries, stored).problems() == {}
    assert len(stored) == len(entries)


def _wait_for_stored(target: Target, topic: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while confluent.stored_count(target.bootstrap, topic, target.partitions) < count:
        time.sleep(0.2)
        assert time.monotonic() < deadline, f"{confluent.stored_count(target.bootstrap, topic, target.partitions)} of {count} stored"
