"""One ZooKeeper, a Kafka 3.9.1 and a Sluice: each sees the other's changes, and both write the same bytes."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from proxy.quota_store.store import SwitchChange
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey, entity_key
from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity, QuotaAdmin
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import CONFIG_COMMAND
from tests.support.processes.stores import Nodes, Opened, opened_place, zookeeper_place

pytestmark = pytest.mark.kafka

PRODUCE, FETCH, PERCENT, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
ALICE = entity_key([("user", "alice")])
ALL_KEYS = {PRODUCE: 1024.0, FETCH: 9_007_199_254_740_991.0, PERCENT: 12.34, MUTATIONS: 1e-7}
WANTED: dict[EntityKey, dict[str, float]] = {
    ALICE: ALL_KEYS,
    entity_key([("user", None)]): {PERCENT: 200.0},
    entity_key([("client-id", "e t/l+ü~*")]): {PRODUCE: 1.0, FETCH: 2.0},
    entity_key([("client-id", None)]): {FETCH: 5.0, MUTATIONS: 1e7},
    entity_key([("user", "CN=Writer,OU=x"), ("client-id", "a b")]): {PERCENT: 0.5, MUTATIONS: 3.0},
    entity_key([("user", "<default>"), ("client-id", None)]): {PRODUCE: 3.0},
    entity_key([("user", None), ("client-id", None)]): {PRODUCE: 4.0, MUTATIONS: 0.001},
    (("ip", "10.0.0.1"),): {"connection_creation_rate": 20.0},
    (("ip", None),): {"connection_creation_rate": 7_000.0},  # the broker enforces it on the tests' own clients as well
}


@pytest.fixture
def nodes(zookeeper_kafka: KafkaCluster) -> Iterator[Nodes]:
    """Return a client that reads the nodes of that ZooKeeper."""
    nodes = Nodes(zookeeper_kafka.zookeeper)
    yield nodes
    nodes.close()


@pytest.fixture
async def sluice(zookeeper_kafka: KafkaCluster) -> AsyncIterator[Opened]:
    """A store on that ZooKeeper, without quotas of other tests; all quotas are removed afterwards."""
    async with opened_place(zookeeper_place(zookeeper_kafka.zookeeper, creates=False)) as place:
        opened = await place.open()
        await remove_quotas(opened)
        opened.reported.clear()
        yield opened
        await remove_quotas(opened)


async def remove_quotas(store: Opened) -> None:
    """Remove all quotas."""
    await store.alter(*(Change(entity, key, None) for entity, values in store.content.quotas.items() for key in values))


def set_at_broker(kafka: KafkaCluster, wanted: dict[EntityKey, dict[str, float | None]]) -> None:
    """Set quotas with the broker's own API, which writes to ZooKeeper."""
    with QuotaAdmin(kafka.bootstrap) as admin:
        results = admin.alter_client_quotas(
            [ClientQuotaAlteration(ClientQuotaEntity.of(dict(entity)), values) for entity, values in wanted.items()]
        )
        assert [error for error in results.values() if error is not None] == []


def written(nodes: Nodes) -> dict[str, bytes | None]:
    """Return every quota node and its data."""
    return {path: nodes.get(path) for path in nodes.paths() if path.split("/")[2] in ("users", "clients", "ips")}


async def test_what_either_wrote_is_byte_equal(zookeeper_kafka: KafkaCluster, nodes: Nodes, sluice: Opened) -> None:
    """Setting and removing the same quotas leaves the same nodes, data and notifications, whether the broker or Sluice writes them."""
    empty = written(nodes)
    reported = len(nodes.notifications())
    await asyncio.to_thread(set_at_broker, zookeeper_kafka, {entity: dict(values) for entity, values in WANTED.items()})
    by_broker, reported_by_broker = written(nodes), sorted(nodes.notifications()[reported:])
    await sluice.until(lambda content: content.quotas == WANTED)
    assert [origin for origin, _ in sluice.reported if origin == "own"] == []

    await asyncio.to_thread(set_at_broker, zookeeper_kafka, {entity: dict.fromkeys(values) for entity, values in WANTED.items()})
    emptied = written(nodes)
    assert {path: data for path, data in emptied.items() if path not in empty} == {}
    await sluice.until(lambda content: content.quotas == {})

    reported = len(nodes.notifications())
    await sluice.alter(*(Change(entity, key, value) for entity, values in WANTED.items() for key, value in values.items()))
    assert written(nodes) == by_broker
    assert sorted(nodes.notifications()[reported:]) == reported_by_broker

    await sluice.alter(*(Change(entity, key, None) for entity, values in WANTED.items() for key in values))
    assert written(nodes) == emptied


async def test_kafka_configs_and_sluice_in_turn(zookeeper_kafka: KafkaCluster, old_tools: JavaTools, nodes: Nodes, sluice: Opened) -> None:
    """kafka-configs and Sluice see and change each other's quotas of a user, and that user's SCRAM credentials stay unchanged."""

    def configs(*arguments: str) -> str:
        where = ("--bootstrap-server", zookeeper_kafka.bootstrap, "--entity-type", "users", "--entity-name", "alice")
        return old_tools.run(CONFIG_COMMAND, *where, *arguments).out

    await asyncio.to_thread(configs, "--alter", "--add-config", f"{PRODUCE}=1024,{PERCENT}=12.5")
    await sluice.until(lambda content: content.quotas.get(ALICE) == {PRODUCE: 1024.0, PERCENT: 12.5})
    await asyncio.to_thread(configs, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=alice-secret]")
    salted = nodes.get("/config/users/alice") or b""
    assert b"SCRAM-SHA-256" in salted

    await sluice.alter(Change(ALICE, PRODUCE, 2048.0), Change(ALICE, FETCH, 7.0))
    described = await asyncio.to_thread(configs, "--describe")
    assert f"{PRODUCE}=2048.0" in described
    assert f"{FETCH}=7.0" in described
    assert credentials(nodes.get("/config/users/alice")) == credentials(salted)

    await asyncio.to_thread(configs, "--alter", "--delete-config", f"{PRODUCE},{PERCENT}")
    await sluice.until(lambda content: content.quotas.get(ALICE) == {FETCH: 7.0})
    await sluice.alter(Change(ALICE, FETCH, None))
    left = nodes.get("/config/users/alice")
    assert left is not None
    assert credentials(left) == credentials(salted)
    await asyncio.to_thread(configs, "--alter", "--delete-config", "SCRAM-SHA-256")


def credentials(node: bytes | None) -> bytes:
    """Return the text of the credentials in a node."""
    assert node is not None
    return node[node.index(b'"SCRAM-SHA-256":') :].split(b'"')[3]


async def test_two_writers_of_different_kind_lose_nothing_of_each_other(
    zookeeper_kafka: KafkaCluster, nodes: Nodes, sluice: Opened
) -> None:
    """While the broker and Sluice set quotas of different users at the same time, all quotas and a switch are stored."""
    names = [f"u{number}" for number in range(40)]
    theirs = {entity_key([("user", name)]): {FETCH: 1.0} for name in names[:20]}
    ours = [Change(entity_key([("user", name)]), PRODUCE, 2.0) for name in names[20:]]
    setting = asyncio.to_thread(set_at_broker, zookeeper_kafka, {entity: dict(values) for entity, values in theirs.items()})
    await asyncio.gather(setting, *(sluice.alter(change) for change in ours), sluice.alter(SwitchChange("all", "observe")))
    await sluice.until(lambda content: len(content.quotas) == 40)
    assert nodes.get("/sluice/switches") == b'{"version":1,"switches":{"all":"observe"}}'
    await sluice.alter(SwitchChange("all", None))
