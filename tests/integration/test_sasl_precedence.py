"""The ladder of `ClientQuotaManagerTest.testQuotaConfigPrecedence`, climbed by real clients that log in at a real broker.

What Kafka's own class answers at each step stands in the vector: which group a client belongs to, and what its bound is.
"""

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.support.clients.bearer_tokens import AwaitedTokens
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.kafka
VECTORS = json.loads((Path(__file__).parents[1] / "vectors/client-quota-manager.json").read_text())["cases"]
(LADDER,) = [case["events"] for case in VECTORS if "testQuotaConfigPrecedence" in case["name"]]
DEFAULT = "<default>"


def sends(bootstrap: str, topic: str, user: str, client_id: str) -> None:
    """Send one record as a user with a client-id."""
    login = sasl.confluent_login("OAUTHBEARER", user)
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 0, **login})
    failures: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []


def put_in_force(sluice: SluiceProcess, path: Path, table: dict[tuple[str | None, str | None], float]) -> None:
    """Write all quotas of the table and wait until they hold."""
    entries = []
    for (user, client_id), rate in table.items():
        names = {"user": user, "client-id": client_id}
        entries.append({**{key: name for key, name in names.items() if name is not None}, "producer_byte_rate": int(rate)})
    loads = len(sluice.events("quotas_loaded"))
    write_quotas(path, entries)
    deadline = time.monotonic() + 20
    while len(sluice.events("quotas_loaded")) == loads:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def key_of(entity: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return user and client-id of an entity, where null is the default one."""
    names = [None if part not in entity else entity[part] if entity[part] is not None else DEFAULT for part in ("user", "client-id")]
    return names[0], names[1]


def recorded(sluice: SluiceProcess) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Return what each produce group has recorded, and its bound."""
    groups = [group for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"]
    return {(group["tags"]["user"], group["tags"]["client-id"]): (group["recorded_total"], group["bound"]) for group in groups}


def test_the_ladder_of_precedence(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """At every step each client counts for the group, and against the bound, that Kafka's own class names."""
    quotas = write_quotas(tmp_path / "quotas.toml", [])
    table: dict[tuple[str | None, str | None], float] = {}
    steps = 0
    topic = new_topic(sasl_kafka.bootstrap, "ladder")
    with SluiceProcess(sasl_kafka.sasl_bootstrap, quotas=quotas, enforcement="observe", name="sluice-ladder") as sluice:
        for operation, events in itertools.groupby(LADDER, lambda event: event["op"]):
            if operation == "update":
                table |= {key_of(event["entity"]): event["value"] for event in events}
                table = {key: rate for key, rate in table.items() if rate is not None}
                put_in_force(sluice, quotas, table)
                continue
            for event in events:
                before = recorded(sluice)
                sends(sluice.bootstrap, topic, event["user"], event["client_id"])
                after = recorded(sluice)
                grown = {tags: bound for tags, (total, bound) in after.items() if total > before.get(tags, (0.0, None))[0]}
                assert grown == {tuple(event["tags"]): event["limit"]}, event
                steps += 1
    print(f"{steps} steps, each as Kafka's own class has it")
    assert steps > 20


def test_names_that_look_like_others(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """A user that is really called `<default>`, or has letters that Kafka encodes, hits neither the default's quota nor a neighbour's."""
    rates = {"<default>": 1_000_000, "a b/ä": 2_000_000, "a%20b%2F%C3%A4": 3_000_000}
    quotas = write_quotas(tmp_path / "quotas.toml", [{"user": user, "producer_byte_rate": rate} for user, rate in rates.items()])
    topic = new_topic(sasl_kafka.bootstrap, "names")
    with SluiceProcess(sasl_kafka.sasl_bootstrap, quotas=quotas, name="sluice-names") as sluice:
        for user in rates:
            asyncio.run(asyncio.wait_for(sends_as(user, sluice.bootstrap, topic), 30))
        bounds = {user: bound for (user, _), (total, bound) in recorded(sluice).items() if total}
    assert bounds == {"%3Cdefault%3E": 1_000_000, "a%20b%2F%C3%A4": 2_000_000, "a%2520b%252F%25C3%25A4": 3_000_000}


async def sends_as(user: str, bootstrap: str, topic: str) -> None:
    """Send a record as a user of any name, which confluent-kafka has no way to say."""
    login = sasl.python_login("OAUTHBEARER", user, AwaitedTokens(user))
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **login) as producer:
        await producer.send_and_wait(topic, b"x")
