"""Paced enforcement before a real broker: bytes flow at the bound from the first burst on, by weights, and each admission is proved."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pipeline.validation.local import validate
from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, producer_result, run_consumer, start_producer
from tests.support.ports import free_bootstrap_port
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = [pytest.mark.kafka, pytest.mark.long]
BOUND = 400_000
RECORDS, RECORD_BYTES = 1_600, 1_000
BURST_SECONDS = 0.5
REQUEST_BYTES = 20_000
"""A batch of the Java producer's default size, and its frame."""
ANSWER_BYTES = 200_000
"""More than a consumer's share of the burst."""
WEIGHTS = {"heavy": 3, "light": 1}
HEAVY_RECORDS = 2_400
SHARE_TOLERANCE = 0.04


def test_clients_get_their_bound(kraft: KafkaCluster, tools: JavaTools, tmp_path: Path) -> None:
    """A Java producer and a Java consumer pass at most bound x (time + burst) and one request, and each admission is exact."""
    sent_to, read_from = new_topic(kraft.bootstrap, "paced-producer"), new_topic(kraft.bootstrap, "paced-consumer")
    confluent.produce(kraft.bootstrap, read_from, [b"x" * RECORD_BYTES] * RECORDS, settings={"batch.size": 32_768})
    quotas = write_quotas(
        tmp_path / "quotas.toml",
        [{"client-id": "limited", "producer_byte_rate": BOUND}, {"client-id": "<default>", "consumer_byte_rate": BOUND}],
    )
    port = free_bootstrap_port()
    config = tmp_path / "sluice.toml"
    config.write_text(
        f'[upstream]\nbootstrap = "{kraft.bootstrap}"\n[[listener]]\naddress = "127.0.0.1:{port}"\n'
        f'[quotas]\npacing = "paced"\npaced_burst_ms = {round(BURST_SECONDS * 1_000)}\n'
        f'[metering]\ndir = "{tmp_path / "metering"}"\n'
    )
    with SluiceProcess(kraft.bootstrap, quotas=quotas, config=config, port=port, name="sluice-paced") as sluice:
        producing = start_producer(tools, sluice.bootstrap, ProducerLoad(sent_to, RECORDS, RECORD_BYTES, client_id="limited"))
        started = time.monotonic()
        read = run_consumer(tools, sluice.bootstrap, read_from, RECORDS, group=f"group-of-{read_from}")
        reading_seconds = time.monotonic() - started
        sent = producer_result(producing)
        groups = {group["quota_type"]: group for group in sluice.quotas()["groups"] if group["bound"] == BOUND}
        waited = sluice.metric("kafka_quota_throttled_requests_total", client_id="limited")
    assert (sent.records, confluent.stored_count(kraft.bootstrap, sent_to, 1), read) == (RECORDS, RECORDS, RECORDS)
    total = RECORDS * RECORD_BYTES
    assert total <= BOUND * (sent.records / sent.records_per_second + BURST_SECONDS) + REQUEST_BYTES
    assert total <= BOUND * (reading_seconds + BURST_SECONDS) + ANSWER_BYTES
    assert waited > 0
    assert [groups[kind]["paced"]["burst_ms"] for kind in ("Produce", "Fetch")] == [500, 500]
    assert all(group["verdicts"] == [] for group in groups.values())
    verdict = validate(tmp_path / "metering")
    assert (verdict.word, verdict.kinds()) == ("exact", {})
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "metering" / "manifests").rglob("*.json")]
    assert sum(manifest["counts"]["Produce"]["units"] for manifest in manifests if "Produce" in manifest["counts"]) > total


def test_groups_with_weights_share_their_parent(kraft: KafkaCluster, tmp_path: Path) -> None:
    """While two groups with one parent want more than it may pass, the one of weight 3 has three quarters of what the broker stores."""
    port = free_bootstrap_port()
    config = tmp_path / "sluice.toml"
    groups = [
        f'[[group]]\nname = "{name}"\nparent = "tenant"\nweight = {weight}\n[group.match]\nclient_id = ["{name}"]\n'
        for name, weight in WEIGHTS.items()
    ]
    config.write_text(
        f'[upstream]\nbootstrap = "{kraft.bootstrap}"\n[[listener]]\naddress = "127.0.0.1:{port}"\n'
        f'[quotas]\npacing = "paced"\npaced_burst_ms = 100\n'
        f'[[group]]\nname = "tenant"\n[group.budget]\nproducer_byte_rate = {BOUND}\n{"".join(groups)}'
        f'[metering]\ndir = "{tmp_path / "metering"}"\n'
    )
    topics = {name: new_topic(kraft.bootstrap, f"paced-{name}") for name in WEIGHTS}
    with SluiceProcess(kraft.bootstrap, config=config, port=port, name="sluice-weights") as sluice:
        producers = {name: _flooding(sluice.bootstrap, name, topic) for name, topic in topics.items()}
        while len(producers["heavy"]):
            for producer in producers.values():
                producer.poll(0.01)
        stored = {name: confluent.stored_count(kraft.bootstrap, topic, 1) for name, topic in topics.items()}
        producers["light"].purge()
    assert stored["heavy"] == HEAVY_RECORDS
    share = stored["heavy"] / sum(stored.values())
    due = WEIGHTS["heavy"] / sum(WEIGHTS.values())
    assert abs(share - due) < SHARE_TOLERANCE, stored
    verdict = validate(tmp_path / "metering")
    assert (verdict.word, verdict.kinds()) == ("exact", {})


def _flooding(bootstrap: str, client_id: str, topic: str) -> Producer:
    """Return a producer that has all records to send, in batches of ten."""
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "batch.size": 10_000, "linger.ms": 50, **confluent.QUIET}
    producer = Producer(settings)
    for _ in range(HEAVY_RECORDS):
        producer.produce(topic, b"x" * RECORD_BYTES)
    return producer
