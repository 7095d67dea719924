"""Clients over their quota in front of a real broker keep to the bound and learn the throttle time, and each verdict can be recomputed."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.settings import SASL_USERS
from tests.support.kafka.tool_calls import ProducerLoad, producer_result, run_consumer, start_producer
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import QuotaEntry, SluiceProcess, write_quotas

pytestmark = [pytest.mark.kafka, pytest.mark.long]
BOUND = 300_000
RECORDS = 4_000
RECORD_BYTES = 1_000
LAST_ANSWER_BYTES = 1_000_000
"""The last answer of a consumer is delivered before its throttle."""
FREE_SECONDS = 10
"""A full set of windows passes before a rate can exceed its bound, in Kafka as here."""
SLACK_BYTES = 6 * 20_000
"""Bytes that a Java producer has in flight at the verdict: five batches of 16 KiB, and the one that exceeds the quota."""


@contextmanager
def _sluice(upstream: str, *entries: QuotaEntry, mode: str, name: str) -> Iterator[SluiceProcess]:
    with temporary_directory("quotas") as directory:
        quotas = write_quotas(Path(directory, "quotas.toml"), entries)
        with SluiceProcess(upstream, quotas=quotas, enforcement=mode, name=f"sluice-{name}") as sluice:
            yield sluice


def _assert_held_to_bound(sent_bytes: int, seconds: float) -> None:
    assert sent_bytes <= BOUND * (seconds + FREE_SECONDS) + SLACK_BYTES


def _verdicts(sluice: SluiceProcess, quota_type: str) -> list[dict[str, Any]]:
    groups = [group for group in sluice.quotas()["groups"] if group["quota_type"] == quota_type]
    return [verdict for group in groups for verdict in group["verdicts"]]


def _recomputed(verdict: dict[str, Any]) -> int:
    """X = (O - T) / T * W, rounded half up."""
    return math.floor((verdict["observed"] - verdict["bound"]) / verdict["bound"] * verdict["window_ms"] + 0.5)


def _assert_verdicts_hold(sluice: SluiceProcess, quota_type: str) -> None:
    verdicts = _verdicts(sluice, quota_type)
    assert verdicts
    assert [_recomputed(verdict) for verdict in verdicts] == [verdict["throttle_ms"] for verdict in verdicts]


JAVA = [
    pytest.param(KRAFT, KRAFT, "mute", id="java-4.3.1-at-4.3.1-mute"),
    pytest.param(KRAFT, KRAFT, "delay", id="java-4.3.1-at-4.3.1-delay"),
    pytest.param(ZOOKEEPER, KRAFT, "mute", id="java-3.9.1-at-4.3.1-mute"),
    pytest.param(ZOOKEEPER, ZOOKEEPER, "delay", id="java-3.9.1-at-3.9.1-delay"),
]


def _java_and_kafka(request: pytest.FixtureRequest, client: str, broker: str) -> tuple[JavaTools, KafkaCluster]:
    java = request.getfixturevalue("tools" if client == KRAFT else "old_tools")
    return java, request.getfixturevalue("kraft" if broker == KRAFT else "zookeeper_kafka")


@pytest.mark.parametrize(("client", "broker", "mode"), JAVA)
def test_java_clients_are_held_to_their_bounds(request: pytest.FixtureRequest, client: str, broker: str, mode: str) -> None:
    """Kafka's performance tools keep to their byte rates and lose nothing; in `mute` the producer's own metrics show the throttle time.

    A consumer gets no throttle time: its fetches are delayed before they are forwarded, and then they are within the quota.

    Both tools run at the same time, since they mostly wait for the first windows to pass.
    """
    java, kafka = _java_and_kafka(request, client, broker)
    sent_to, read_from = new_topic(kafka.bootstrap, "throttled-producer"), new_topic(kafka.bootstrap, "throttled-consumer")
    confluent.produce(kafka.bootstrap, read_from, [b"x" * RECORD_BYTES] * RECORDS)
    quotas = ({"client-id": "limited", "producer_byte_rate": BOUND}, {"client-id": "<default>", "consumer_byte_rate": BOUND})
    with _sluice(kafka.bootstrap, *quotas, mode=mode, name=f"java-{client}-{mode}") as sluice:
        producing = start_producer(java, sluice.bootstrap, ProducerLoad(sent_to, RECORDS, RECORD_BYTES, client_id="limited"))
        started = time.monotonic()
        read = run_consumer(java, sluice.bootstrap, read_from, RECORDS, group=f"group-of-{read_from}")
        reading_seconds = time.monotonic() - started
        sent = producer_result(producing)
        _assert_verdicts_hold(sluice, "Produce")
        _assert_verdicts_hold(sluice, "Fetch")
    assert (sent.records, confluent.stored_count(kafka.bootstrap, sent_to, 1), read) == (RECORDS, RECORDS, RECORDS)
    _assert_held_to_bound(RECORDS * RECORD_BYTES, sent.records / sent.records_per_second)
    _assert_held_to_bound(RECORDS * RECORD_BYTES - LAST_ANSWER_BYTES, reading_seconds)
    if mode == "mute":
        assert sent.metric("producer-metrics:produce-throttle-time-max") > 0


def test_observe_delays_no_client(kraft: KafkaCluster) -> None:
    """In `observe` verdicts are recorded, and no client gets a throttle time."""
    topic, reported = new_topic(kraft.bootstrap, "observed"), list[float]()
    with _sluice(kraft.bootstrap, {"client-id": "limited", "producer_byte_rate": 10_000}, mode="observe", name="observe") as sluice:
        settings = {"client.id": "limited", "throttle_cb": lambda event: reported.append(event.throttle_time)}
        assert confluent.produce(sluice.bootstrap, topic, [b"x" * RECORD_BYTES] * 2_000, settings=settings) == 2_000
        _assert_verdicts_hold(sluice, "Produce")
        assert sluice.metric("kafka_quota_throttled_requests_total", client_id="limited") > 0
    assert reported == []


def test_librdkafka_receives_exactly_the_verdict(kraft: KafkaCluster) -> None:
    """In `mute` the throttle callback of librdkafka gets the milliseconds that /quotas shows."""
    topic, reported = new_topic(kraft.bootstrap, "reported"), list[int]()
    with _sluice(kraft.bootstrap, {"client-id": "limited", "producer_byte_rate": 50_000}, mode="mute", name="reported") as sluice:
        settings = {"client.id": "limited", "throttle_cb": lambda event: reported.append(round(event.throttle_time * 1_000))}
        settings |= {"batch.size": 32_768, "max.in.flight": 1}
        confluent.produce(sluice.bootstrap, topic, [b"x" * RECORD_BYTES] * 600, settings=settings)
        shown = [verdict["throttle_ms"] for verdict in _verdicts(sluice, "Produce")]
    assert set(shown) & set(reported) == set(reported) != set()


@pytest.mark.parametrize("kafka_name", ["kraft", "zookeeper_kafka"])
def test_a_client_that_logs_in_is_held_too(request: pytest.FixtureRequest, kafka_name: str) -> None:
    """A client that logs in with SASL at the broker through Sluice is held to the quota of its client-id."""
    kafka: KafkaCluster = request.getfixturevalue(kafka_name)
    topic = new_topic(kafka.bootstrap, "logged-in")
    values = [b"x" * RECORD_BYTES] * 600
    with _sluice(kafka.sasl_bootstrap, {"client-id": "limited", "producer_byte_rate": 50_000}, mode="mute", name="sasl") as sluice:
        assert confluent.produce(sluice.bootstrap, topic, values, settings=_login("alice")) == len(values)
        _assert_verdicts_hold(sluice, "Produce")
    assert confluent.stored_count(kafka.bootstrap, topic, 1) == len(values)


def _login(user: str) -> confluent.Settings:
    login = {"sasl.username": user, "sasl.password": SASL_USERS[user], "sasl.mechanism": "PLAIN"}
    return {**login, "security.protocol": "SASL_PLAINTEXT", "client.id": "limited", "batch.size": 32_768}
