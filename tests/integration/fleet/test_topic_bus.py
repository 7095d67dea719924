"""The bus of a fleet in a topic of a real Kafka: messages between members, the checks of the topic, and what happens when it changes."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from proxy.fleet.bus import topic as bus_in_topic
from proxy.fleet.bus import topic_reader
from proxy.fleet.bus.bus import BusError
from proxy.fleet.bus.topic import TopicBus
from proxy.fleet.bus.topic_needs import CONFIGS
from tests.support.clients.topics import new_topic
from tests.support.fleet.bus_contract import CHECKS, PATIENCE_S, Check, check_not_started, problem_of, received
from tests.support.fleet.topic_members import (
    TopicMembers,
    members_at,
    received_despite_errors,
    run_remedy,
    send_despite_errors,
    start_despite_errors,
)
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.patience import stop_process

pytestmark = pytest.mark.kafka
LOST = "messages were lost"
SILENT = "the brokers do not respond"
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """Return the name of a topic that no test has used."""
    return f"topic-bus-{next(_numbers)}"


@pytest.fixture
async def members(kraft: KafkaCluster) -> AsyncIterator[TopicMembers]:
    """Return the members of a fleet, none yet."""
    async with members_at(kraft.bootstrap) as members:
        yield members


@pytest.fixture
def admin(kraft: KafkaCluster) -> AdminClient:
    """Return another client, which sees and changes topics."""
    return AdminClient({"bootstrap.servers": kraft.bootstrap})


def configs_of(admin: AdminClient, topic: str) -> dict[str, str]:
    """Return the settings of a topic."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(PATIENCE_S).items()}


def set_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def delete(admin: AdminClient, topic: str) -> None:
    """Delete a topic."""
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


# --- messages


@pytest.mark.parametrize("check", CHECKS)
async def test_what_every_bus_does(members: TopicMembers, topic: str, check: Check) -> None:
    """Each sentence of the contract is true of a topic."""
    await check(lambda: members.join(topic))


# --- the topic


async def test_a_missing_topic_is_created(members: TopicMembers, admin: AdminClient, topic: str) -> None:
    """Members that start at once create one topic with one partition and the settings of a fleet."""
    await asyncio.gather(*(members.join(topic) for _ in range(3)))
    (partition,) = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
    assert len(partition.replicas) == 1  # of the only broker
    assert configs_of(admin, topic).items() >= CONFIGS.items()


async def test_a_replication_factor_that_the_brokers_refuse(members: TopicMembers, topic: str) -> None:
    """The reason of the brokers is in the error."""
    bus = members.bus(topic, replication_factor=2)
    assert "cannot be created (error 38): Unable to replicate the partition 2 time(s)" in await problem_of(bus.start())


async def test_a_missing_topic_is_named_with_its_remedy(members: TopicMembers, tools: JavaTools, admin: AdminClient, topic: str) -> None:
    """Without `create` the error has a command, and that makes the same topic as a member would."""
    bus = members.bus(topic, create=False)
    problem = await problem_of(bus.start())
    assert problem.startswith("does not exist; write create = true, or run: kafka-topics.sh --bootstrap-server 127.0.0.1:")
    run_remedy(tools, problem)
    await bus.start()
    assert configs_of(admin, topic).items() >= CONFIGS.items()


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ({"cleanup.policy": "compact"}, "has cleanup.policy=compact; run: "),
        ({"message.timestamp.type": "CreateTime"}, "has message.timestamp.type=CreateTime; run: "),
        ({"retention.ms": "59999"}, "has retention.ms=59999; run: "),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1"}, "has cleanup.policy=compact,delete, retention.ms=-1; run: "),
    ],
)
async def test_an_unsuitable_topic_is_named_with_its_remedy(
    kraft: KafkaCluster, members: TopicMembers, tools: JavaTools, configs: Mapping[str, str], says: str
) -> None:
    """The error has the wrong settings in one line with a command, and that makes the topic suitable."""
    bus = members.bus(new_topic(kraft.bootstrap, "unsuitable", config=CONFIGS | dict(configs)))
    problem = await problem_of(bus.start())
    assert problem.startswith(f"{says}kafka-configs.sh ")
    assert "\n" not in problem
    run_remedy(tools, problem)
    await bus.start()


async def test_a_topic_with_two_partitions_is_refused(kraft: KafkaCluster, members: TopicMembers) -> None:
    """A topic with two partitions has no one order; the error says what to do."""
    bus = members.bus(new_topic(kraft.bootstrap, "partitions", partitions=2, config=CONFIGS))
    assert await problem_of(bus.start()) == ("has 2 partitions, and they cannot be removed; name a topic with one, or delete this one")


async def test_a_topic_that_loses_its_clock(members: TopicMembers, tools: JavaTools, admin: AdminClient, topic: str) -> None:
    """When messages get the times of their producers, `send` says so, with a command that ends this."""
    bus = await members.join(topic)
    set_config(admin, topic, "message.timestamp.type", "CreateTime")
    with pytest.raises(BusError, match=r"^has message\.timestamp\.type=CreateTime; run: kafka-configs\.sh ") as raised:
        await until_error(bus)
    run_remedy(tools, str(raised.value))
    await send_despite_errors(bus, b"x")


async def until_error(bus: TopicBus) -> None:
    """Send messages until that fails: brokers apply a new setting a little later."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await bus.send(b"x")


# --- faults


async def test_a_topic_that_is_made_anew(members: TopicMembers, admin: AdminClient, topic: str) -> None:
    """`receive` reports lost messages without a new message until the member reads from another place, and the bus goes on."""
    bus = await members.join(topic)
    for _ in range(5):
        await bus.send(b"old")
    await received(bus, 5)
    receiving = asyncio.create_task(bus.receive())
    delete(admin, topic)
    other = await members.join(topic)
    for work in (receiving, bus.receive()):
        assert LOST in await problem_of(work)
    await bus.stop()
    await bus.start()
    assert await bus.read_from(0) == 0
    sent = await other.send(b"new")
    assert await received(bus, 1) == [(*sent, b"new")]


async def test_a_topic_that_is_deleted(members: TopicMembers, admin: AdminClient, topic: str) -> None:
    """`receive` reports lost messages although nobody makes the topic again, and what was not accepted before `stop` is never sent."""
    bus = await members.join(topic)
    await bus.send(b"before")
    await received(bus, 1)
    receiving = asyncio.create_task(bus.receive())
    delete(admin, topic)
    sending = asyncio.create_task(bus.send(b"not accepted"))
    assert LOST in await problem_of(receiving)
    assert not sending.done()
    sending.cancel()
    stopping = asyncio.create_task(bus.stop())
    other = await members.join(topic)
    await stopping
    sent = await other.send(b"after")
    await other.read_from(0)
    assert await received(other, 1) == [(*sent, b"after")]


async def test_messages_that_were_deleted_before_they_were_read(members: TopicMembers, kraft: KafkaCluster, topic: str) -> None:
    """A reader whose next message was deleted reports lost messages, and reads on after `read_from`."""
    bus = await members.join(topic)
    for _ in range(5):
        await bus.send(b"x")
    await bus.read_from(0)
    delete_before(kraft, topic, 3)
    assert LOST in await problem_of(bus.receive())
    assert await bus.read_from(0) == 3
    assert [one.position for one in await received(bus, 2)] == [3, 4]


def delete_before(kraft: KafkaCluster, topic: str, position: int) -> None:
    """Delete the messages before a position, as retention does."""
    admin = AdminClient({"bootstrap.servers": kraft.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, position)]).values():
        done.result(PATIENCE_S)


@pytest.fixture
def stopped(kraft: KafkaCluster) -> Iterator[int]:
    """Return the id of the broker's process, which continues at the end."""
    (node,) = kraft.nodes.values()
    yield node.process.pid
    os.kill(node.process.pid, signal.SIGCONT)


async def test_a_broker_that_is_stopped_and_continues(members: TopicMembers, topic: str, stopped: int) -> None:
    """Each call ends with an error while the broker is stopped; when it continues, the same connection goes on without a loss."""
    bus = await members.join(topic)
    await bus.send(b"before")
    await received(bus, 1)
    stop_process(stopped)
    for problem in await asyncio.gather(*map(problem_of, (bus.send(b"meanwhile"), bus.receive(), bus.read_from(0)))):
        assert problem == SILENT
    os.kill(stopped, signal.SIGCONT)
    await send_despite_errors(bus, b"after")
    messages = await received_despite_errors(bus, b"after")
    assert [one.position for one in messages] == list(range(1, 1 + len(messages)))


async def test_a_start_and_a_stop_with_a_stopped_broker(
    members: TopicMembers, topic: str, stopped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` does not wait for a stopped broker, `start` fails, and all of this ends when the broker continues."""
    monkeypatch.setattr(bus_in_topic, "STOP_S", 0.2)
    before = asyncio.all_tasks()
    bus = await members.join(topic)
    stop_process(stopped)
    sending = asyncio.create_task(bus.send(b"x"))
    await asyncio.sleep(0)
    await bus.stop()
    assert not sending.done()
    await asyncio.gather(problem_of(sending), problem_of(bus.start()))
    os.kill(stopped, signal.SIGCONT)
    async with asyncio.timeout(PATIENCE_S):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)
    await start_despite_errors(bus)


async def test_a_reader_whose_fetches_have_ended(members: TopicMembers, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When aiokafka fetches no more, `receive` reports it although the brokers respond, and a new connection reads the message."""
    monkeypatch.setattr(topic_reader, "POLL_INTERVAL_S", 0.2)
    bus = await members.join(topic)
    await bus.send(b"x")
    await received(bus, 1)
    assert bus._reader is not None
    bus._reader._consumer._fetcher._fetch_task.cancel()
    sent = await bus.send(b"y")
    with pytest.raises(BusError, match="has messages that fetches do not return"):
        await received(bus, 2)
    await bus.stop()
    await bus.start()
    await bus.read_from(sent.time_ms)
    assert (*sent, b"y") in await received(bus, 1)


async def test_a_bus_that_is_not_started(members: TopicMembers, topic: str) -> None:
    """Each call fails before `start` and after `stop`, also a `receive` that waits; `stop` may be called at any time."""
    await check_not_started(members.bus(topic), "was stopped")
