"""The bus of a fleet at two brokers, one of which dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from proxy.fleet.bus.topic_needs import CONFIGS
from tests.support.clients.topics import new_topic
from tests.support.fleet.bus_contract import PATIENCE_S, problem_of, received
from tests.support.fleet.topic_members import TopicMembers, members_at, received_despite_errors, send_despite_errors
from tests.support.kafka.broker import KafkaCluster, KafkaNode

pytestmark = pytest.mark.kafka


@pytest.fixture
async def members(kraft_pair: KafkaCluster) -> AsyncIterator[TopicMembers]:
    """Return the members of a fleet, none yet."""
    async with members_at(kraft_pair.bootstrap) as members:
        yield members


@pytest.fixture
def mortal(kraft_pair: KafkaCluster) -> Iterator[KafkaNode]:
    """Return the node that is no controller; it runs again at the end."""
    node = kraft_pair.nodes[2]
    yield node
    node.kill()
    node.start()


async def test_a_topic_has_a_replica_at_each_of_few_brokers(members: TopicMembers, kraft_pair: KafkaCluster) -> None:
    """Without a replication factor the topic has as many replicas as there are brokers, up to three."""
    await members.join("fleet-replicas")
    found = AdminClient({"bootstrap.servers": kraft_pair.bootstrap}).list_topics("fleet-replicas", timeout=PATIENCE_S)
    assert sorted(found.topics["fleet-replicas"].partitions[0].replicas) == [1, 2]


async def test_the_death_of_the_leader(members: TopicMembers, kraft_pair: KafkaCluster, mortal: KafkaNode) -> None:
    """When the leader is killed, the same connections go on at the next leader, without a loss."""
    topic = new_topic(kraft_pair.bootstrap, "fleet-leader", assignment=[[2, 1]], config=CONFIGS)
    one, other = await members.join(topic), await members.join(topic)
    for number in range(10):
        await one.send(b"%d" % number)
    await received(other, 10)  # messages that were received have reached both brokers
    mortal.kill()
    await send_despite_errors(one, b"after")
    messages = await received_despite_errors(other, b"after")
    assert [one.position for one in messages] == list(range(10, 10 + len(messages)))
    assert await other.read_from(0) == 0


@pytest.fixture
def all_mortal(kraft_pair: KafkaCluster) -> Iterator[list[KafkaNode]]:
    """Return both nodes; they run again at the end."""
    nodes = list(kraft_pair.nodes.values())
    yield nodes
    for node in nodes:
        node.kill()
        node.launch()
    kraft_pair.wait_until_serving()


async def test_members_end_when_all_brokers_are_dead(members: TopicMembers, all_mortal: list[KafkaNode]) -> None:
    """While all brokers refuse connections, members stop without an error and without a task that stays."""
    before = asyncio.all_tasks()
    buses = [await members.join("fleet-dead") for _ in range(4)]
    receiving = [asyncio.create_task(problem_of(bus.receive())) for bus in buses]
    for node in all_mortal:
        node.kill()
    await asyncio.gather(*receiving)
    for bus in buses:
        await bus.stop()
    async with asyncio.timeout(PATIENCE_S):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)
    assert "Unable to bootstrap" in await problem_of(buses[0].start())
