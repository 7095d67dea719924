"""The levels of `ClientQuotaManagerTest.testQuotaConfigPrecedence` with real clients that log in at a real broker.

The vector states what Kafka's own class answers at each step: the client's group and its bound.
"""

import asyncio
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity, QuotaAdmin
from tests.support.clients.bearer_tokens import AwaitedTokens
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.broker_bounds import BrokerBounds, BrokerGroup
from tests.support.patience import until_true
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.kafka
VECTORS = json.loads((Path(__file__).parents[2] / "vectors/traces/client-quota-manager.json").read_text())["cases"]
(PRECEDENCE,) = [case["events"] for case in VECTORS if "testQuotaConfigPrecedence" in case["name"]]
DEFAULT = "<default>"


SENTINEL = "sentinel"
"""A user whose bound differs after each change: when it is in force, all earlier changes are."""
VALUE = b"x" * 20_000
RISE = 0.6 * len(VALUE) / 11
"""The smallest rise of a group's rate by one record, in bytes per second; the rates of all other groups fall meanwhile."""

Tags = tuple[str, str]
Entity = tuple[str | None, str | None]


def sends(bootstrap: str, topic: str, user: str, client_id: str) -> None:
    """Send one record as a user with a client-id."""
    login = sasl.confluent_login("OAUTHBEARER", user)
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 0, **login})
    failures: list[object] = []
    producer.produce(topic, VALUE, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []


def put_in_force(sluice: SluiceProcess, path: Path, table: Mapping[Entity, float]) -> None:
    """Write all quotas of the table and wait until they hold."""
    entries = []
    for (user, client_id), rate in table.items():
        names = {"user": user, "client-id": client_id}
        entries.append({**{key: name for key, name in names.items() if name is not None}, "producer_byte_rate": int(rate)})
    loads = len(sluice.events("quotas_loaded"))
    write_quotas(path, entries)
    until_true(lambda: len(sluice.events("quotas_loaded")) > loads, "the quota table")


def key_of(entity: dict[str, Any]) -> Entity:
    """Return user and client-id of an entity, where null is the default one."""
    names = [None if part not in entity else entity[part] if entity[part] is not None else DEFAULT for part in ("user", "client-id")]
    return names[0], names[1]


def recorded(sluice: SluiceProcess) -> dict[Tags, tuple[float, float | None]]:
    """Return the total that each produce group has recorded, and its bound."""
    groups = [group for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"]
    return {(group["tags"]["user"], group["tags"]["client-id"]): (group["recorded_total"], group["bound"]) for group in groups}


class Broker:
    """The same quotas on the broker; `close` removes all of them."""

    def __init__(self, admin: QuotaAdmin, bounds: BrokerBounds) -> None:
        self._admin = admin
        self._bounds = bounds
        self._changes = 0

    def start_sentinel(self, bootstrap: str, topic: str) -> None:
        """Give the sentinel a quota and send as it until the broker has its group.

        The answer of the controller precedes the change on the broker, and a record sent in between belongs to no group.
        """
        self.alter({(SENTINEL, None): 50_000.0})

        def has_group() -> bool:
            sends(bootstrap, topic, SENTINEL, "any")
            return (SENTINEL, "") in self.groups()

        until_true(has_group, "the sentinel's group")

    def put_in_force(self, changes: Mapping[Entity, float | None]) -> None:
        """Alter quotas and wait until they hold: the broker applies changes in order, and the sentinel's is the last."""
        self._changes += 1
        bound = 50_000.0 + self._changes
        self.alter(changes)
        self.alter({(SENTINEL, None): bound})
        until_true(lambda: self.groups().get((SENTINEL, ""), NO_GROUP).bound == bound, "the broker's quota")

    def alter(self, changes: Mapping[Entity, float | None]) -> None:
        """Alter quotas without waiting."""
        alterations = [
            ClientQuotaAlteration(_entity(names), {"producer_byte_rate": None if rate is None else rate}) for names, rate in changes.items()
        ]
        assert set(self._admin.alter_client_quotas(alterations).values()) == {None}

    def groups(self) -> dict[Tags, BrokerGroup]:
        """Return all groups of the broker."""
        return self._bounds.groups()

    def take_away(self, table: Iterable[Entity]) -> None:
        """Remove all quotas."""
        self.alter(dict.fromkeys([*table, (SENTINEL, None)]))


NO_GROUP = BrokerGroup(-1.0, 0.0)


def _entity(names: Entity) -> ClientQuotaEntity:
    """Return an entity in the form of the wire, where None is the default entity."""
    parts = zip(("user", "client-id"), names, strict=True)
    return ClientQuotaEntity.of({part: None if name == DEFAULT else name for part, name in parts if name is not None})


def check_step(sluice: SluiceProcess, broker: Broker, topic: str, event: dict[str, Any]) -> None:
    """Send as the client of a step; assert that Sluice, the broker and Kafka's class use the same group and bound."""
    expected = {tuple(event["tags"]): event["limit"]}
    before, broker_before = recorded(sluice), broker.groups()
    sends(sluice.bootstrap, topic, event["user"], event["client_id"])
    broker_after, after = broker.groups(), recorded(sluice)
    grown = {tags: bound for tags, (total, bound) in after.items() if total > before.get(tags, (0.0, None))[0]}
    assert grown == expected, event
    risen = {tags: group.bound for tags, group in broker_after.items() if group.rate - broker_before.get(tags, NO_GROUP).rate > RISE}
    assert risen == expected, event


def test_the_levels_of_precedence(sasl_kafka: KafkaCluster, broker_bounds: BrokerBounds, tmp_path: Path) -> None:
    """At every step a client has the same group and bound in Sluice, on the broker behind it, and in Kafka's own class."""
    quotas = write_quotas(tmp_path / "quotas.toml", [])
    table: dict[Entity, float] = {}
    asked: set[Entity] = set()
    steps = 0
    topic = new_topic(sasl_kafka.bootstrap, "precedence")
    arguments = {"quotas": quotas, "enforcement": "observe", "name": "sluice-precedence"}
    with QuotaAdmin(sasl_kafka.bootstrap) as admin, SluiceProcess(sasl_kafka.sasl_bootstrap, **arguments) as sluice:
        broker = Broker(admin, broker_bounds)
        broker.start_sentinel(sasl_kafka.sasl_bootstrap, topic)
        try:
            for operation, group in itertools.groupby(PRECEDENCE, lambda event: event["op"]):
                events = list(group)
                if operation == "update":
                    changes = {key_of(event["entity"]): event["value"] for event in events}
                    asked |= changes.keys()
                    table = {key: rate for key, rate in (table | changes).items() if rate is not None}
                    broker.put_in_force(changes)
                    put_in_force(sluice, quotas, table)
                    continue
                for event in events:
                    check_step(sluice, broker, topic, event)
                    steps += 1
        finally:
            broker.take_away(asked)
    print(f"{steps} steps, each the same in Sluice, on the broker and in Kafka's own class")
    assert steps > 20


def test_names_that_look_like_others(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """The quota of a user named `<default>`, or with characters that Kafka encodes, applies to exactly that user."""
    rates = {"<default>": 1_000_000, "a b/ä": 2_000_000, "a%20b%2F%C3%A4": 3_000_000}
    quotas = write_quotas(tmp_path / "quotas.toml", [{"user": user, "producer_byte_rate": rate} for user, rate in rates.items()])
    topic = new_topic(sasl_kafka.bootstrap, "names")
    with SluiceProcess(sasl_kafka.sasl_bootstrap, quotas=quotas, name="sluice-names") as sluice:
        for user in rates:
            asyncio.run(asyncio.wait_for(sends_as(user, sluice.bootstrap, topic), 30))
        bounds = {user: bound for (user, _), (total, bound) in recorded(sluice).items() if total}
    assert bounds == {"%3Cdefault%3E": 1_000_000, "a%20b%2F%C3%A4": 2_000_000, "a%2520b%252F%25C3%25A4": 3_000_000}


async def sends_as(user: str, bootstrap: str, topic: str) -> None:
    """Send a record as a user of any name; confluent-kafka cannot express every name."""
    login = sasl.python_login("OAUTHBEARER", user, AwaitedTokens(user))
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **login) as producer:
        await producer.send_and_wait(topic, b"x")
