"""Users of a real broker who log in through Sluice have the right name and quota, stay connected, and no secret is logged."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from quota.entity import sanitize
from tests.support.clients.bearer_tokens import AwaitedTokens, Tokens
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, run_producer, start_producer
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = [pytest.mark.kafka, pytest.mark.long]

USERS = {"PLAIN": "alice", "SCRAM-SHA-256": sasl.SCRAM_USER, "SCRAM-SHA-512": sasl.SCRAM_USER, "OAUTHBEARER": "Ünï=code,<default>"}
RECORDS = 30
VALUE = b"v" * 1_000


def write_config(directory: Path, sluice_port: int, upstream: str, *, listener: str = "", top: str = "") -> Path:
    """Write a configuration with listener settings that flags cannot express."""
    path = directory / "sluice.toml"
    path.write_text(
        f'{top}\n[upstream]\nbootstrap = "{upstream}"\n[[listener]]\naddress = "127.0.0.1:{sluice_port}"\nname = "clients"\n{listener}\n'
        '[log]\nlevel = "debug"\n'
    )
    return path


class Sluice(SluiceProcess):
    """A Sluice with a configuration file in `directory`."""

    def __init__(self, upstream: str, directory: Path, *, listener: str, name: str, **options: Any) -> None:
        super().__init__(upstream, name=name, **options)
        config = write_config(directory, self.port, upstream, listener=listener)
        at = self._command.index("--listen")
        del self._command[at : at + 4]
        self._command[at:at] = ["--config", str(config)]


@pytest.fixture(scope="module")
def sluice(sasl_kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sluice]:
    """Sluice in front of the SASL broker, at log level DEBUG, with SASL declared."""
    directory = tmp_path_factory.mktemp("sasl")
    quotas = write_quotas(directory / "quotas.toml", [{"user": "<default>", "producer_byte_rate": 50_000_000}])
    with Sluice(sasl_kafka.sasl_bootstrap, directory, listener='protocol = "SASL_PLAINTEXT"', name="sluice-sasl", quotas=quotas) as running:
        yield running


def with_java(tools: JavaTools, bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    """Produce with the Java client."""
    with temporary_directory("login") as directory:
        load = ProducerLoad(topic, RECORDS, len(VALUE), client_id="app", config=sasl.java_login(Path(directory), mechanism, user))
        assert run_producer(tools, bootstrap, load).records == RECORDS


def with_confluent(_tools: JavaTools, bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    """Produce with confluent-kafka."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "app", **sasl.confluent_login(mechanism, user)})
    errors: list[KafkaError] = []
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(30) == 0
    assert errors == []


def with_aiokafka(_tools: JavaTools, bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    """Produce with aiokafka."""

    async def run() -> None:
        login = sasl.python_login(mechanism, user, AwaitedTokens(user))
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, client_id="app", **login) as producer:
            for _ in range(RECORDS):
                await producer.send_and_wait(topic, VALUE)

    asyncio.run(asyncio.wait_for(run(), 30))


def with_kafka_python(_tools: JavaTools, bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    """Produce with kafka-python."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="app", **sasl.python_login(mechanism, user, Tokens(user)))
    try:
        answers = [producer.send(topic, VALUE) for _ in range(RECORDS)]
        producer.flush(30)
        assert sum(answer.succeeded() for answer in answers) == RECORDS
    finally:
        producer.close()


CLIENTS: dict[str, Callable[[JavaTools, str, str, str, str], None]] = {
    "java": with_java,
    "confluent": with_confluent,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
}


def produced_by_user(sluice: SluiceProcess) -> dict[str, float]:
    """Return the bytes of each user's produce group; every user has its own group."""
    groups = [group for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"]
    assert all(group["tags"]["client-id"] == "" for group in groups)
    return {group["tags"]["user"]: group["recorded_total"] for group in groups}


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_who_it_logged_in_as(
    client: str, mechanism: str, sluice: Sluice, sasl_kafka: KafkaCluster, tools: JavaTools
) -> None:
    """With each of four clients and four mechanisms, every byte counts for the user under its encoded name, and for no other user."""
    user = USERS[mechanism]
    if mechanism == "OAUTHBEARER" and client in ("java", "confluent"):
        user = f"bearer-{client}"  # their settings cannot express every character of the name
    elif client == "kafka-python":
        user = user if mechanism == "OAUTHBEARER" else "alice"  # kafka-python sends the other names without escaping them
    topic = new_topic(sasl_kafka.bootstrap, f"login-{client}-{mechanism}".lower())
    before = produced_by_user(sluice)
    CLIENTS[client](tools, sluice.bootstrap, topic, mechanism, user)
    after = produced_by_user(sluice)
    grown = {name for name, total in after.items() if total > before.get(name, 0)}
    assert grown == {sanitize(user)}
    assert after[sanitize(user)] - before.get(sanitize(user), 0) >= RECORDS * len(VALUE)
    assert sluice.metric("kafka_sluice_internal_errors_total") == 0


def test_wrong_passwords_are_refused_by_the_broker(sluice: Sluice, sasl_kafka: KafkaCluster, tools: JavaTools, tmp_path: Path) -> None:
    """With every mechanism a wrong password gives the broker's own refusal, counts as a failed exchange, and counts no bytes for a user."""
    topic = new_topic(sasl_kafka.bootstrap, "refused")
    before = produced_by_user(sluice)
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        login = sasl.java_login(tmp_path, mechanism, USERS[mechanism], sasl.PASSWORD + "-wrong")
        ended = start_producer(tools, sluice.bootstrap, ProducerLoad(topic, 1, 10, config=login)).wait()
        assert "Authentication failed" in ended.out + ended.err
        assert sluice.metric("kafka_sluice_sasl_exchanges_total", mechanism=mechanism, outcome="failure") >= 1
        failed = [event for event in sluice.events("connection_closed") if event["reason"] == "login_failed"]
        assert f"the broker refused {mechanism} of user {USERS[mechanism]}" in {event["detail"] for event in failed}
    assert produced_by_user(sluice) == before


@pytest.mark.parametrize(("client", "mechanism", "mode"), [("java", "PLAIN", "delay"), ("confluent", "SCRAM-SHA-256", "mute")])
def test_e01_sessions_are_renewed_under_load_and_throttle(
    client: str, mechanism: str, mode: str, sasl_kafka: KafkaCluster, tools: JavaTools, tmp_path: Path
) -> None:
    """With sessions of 2 s a throttled producer logs in repeatedly; Sluice closes no connection, and no byte counts for another user."""
    seconds = 12
    user = USERS[mechanism]
    quotas = write_quotas(tmp_path / "quotas.toml", [{"user": user, "producer_byte_rate": 200_000}])
    topic = new_topic(sasl_kafka.bootstrap, f"renewed-{client}-{mode}")
    listener = 'protocol = "SASL_PLAINTEXT"'
    with Sluice(sasl_kafka.sasl_bootstrap, tmp_path, listener=listener, name="sluice-renewed", quotas=quotas, enforcement=mode) as one:
        login = sasl.java_login(tmp_path, mechanism, user)
        produce_for(client, mechanism, one.bootstrap, topic, seconds, tools, login)
        renewals = one.metric("kafka_sluice_sasl_exchanges_total", mechanism=mechanism, outcome="success")
        closes = {event["reason"]: event for event in one.events("connection_closed")}
        by_user = produced_by_user(one)
        throttles = one.metric("kafka_quota_throttle_duration_seconds_count")
        one.kill()
    print(f"{client} {mode}: {renewals:.0f} logins, {throttles:.0f} throttles, ended by {sorted(closes)}")
    assert set(closes) <= {"client_closed", "client_reset", "drain"}
    assert renewals >= 3
    assert throttles > 0
    assert {name for name, total in by_user.items() if total} == {sanitize(user)}


def produce_for(client: str, mechanism: str, bootstrap: str, topic: str, seconds: int, tools: JavaTools, login: Path) -> None:
    """Send 2 MB/s for so many seconds; records that the quota delays beyond that may be dropped."""
    if client == "java":
        load = ProducerLoad(topic, 400 * seconds, 1_000, properties={"acks": "1"}, records_per_second=2_000, config=login)
        run_producer(tools, bootstrap, load)
        return
    producer = Producer(
        {"bootstrap.servers": bootstrap, "max.in.flight": 5, "log_level": 0, **sasl.confluent_login(mechanism, USERS[mechanism])}
    )
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            try:
                producer.produce(topic, VALUE)
            except BufferError:
                break
        producer.poll(0.01)
    producer.purge()
    producer.flush(10)


def test_g10_no_secret_in_any_output(sluice: Sluice) -> None:
    """After all logins of this file, at DEBUG, neither the log nor a page of the admin port contains a password or token."""
    said = [sluice.output()] + [sluice.get(page)[1] for page in ("/metrics", "/quotas", "/connections", "/readyz", "/healthz")]
    assert len(sluice.events()) > 5
    for secret in (sasl.PASSWORD, json.dumps(sasl.PASSWORD), "eyJhbGciOi", sasl.PASSWORD.encode().hex()):
        assert [text[:200] for text in said if secret in text] == []
