"""The bus of a fleet at a Kafka with ACLs: each denial names the command that permits it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from proxy.fleet.bus.topic import TopicBus
from proxy.fleet.bus.topic_needs import CONFIGS
from tests.support.clients.topics import new_topic
from tests.support.fleet.bus_contract import PATIENCE_S, problem_of, received
from tests.support.fleet.topic_members import TopicMembers, members_at, received_despite_errors, run_remedy
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.settings import SASL_USERS
from tests.support.patience import until_true

pytestmark = pytest.mark.kafka
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # the broker itself, and who connects without a login
}
USER = "alice"
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": USER,
    "sasl_plain_password": SASL_USERS[USER],
}
DENIED = "the brokers deny Sluice (TopicAuthorizationFailed); put Sluice's principal in the place of NAME and run: kafka-acls.sh "
_numbers = itertools.count()


@pytest.fixture(scope="module")
def locked() -> Iterator[KafkaCluster]:
    """A broker that permits nothing to users without ACLs."""
    with KafkaCluster(name="kafka-fleet-acl", settings=AUTHORIZER) as running:
        yield running


@pytest.fixture
async def members(locked: KafkaCluster) -> AsyncIterator[TopicMembers]:
    """Return the members of a fleet, with a login that has no rights yet."""
    async with members_at(locked.sasl_bootstrap, LOGIN) as members:
        yield members


async def permit(tools: JavaTools, locked: KafkaCluster, problem: str) -> list[str]:
    """Run the command of a problem as an administrator, and wait until its ACLs apply; return its words."""
    words = run_remedy(tools, problem, bootstrap=locked.bootstrap, principal=USER)
    topic = words[words.index("--topic") + 1]
    wanted = words.count("--operation")
    until_true(lambda: len(acls(locked, topic)) == wanted, "the ACLs")
    return list(words)


def acls(locked: KafkaCluster, topic: str) -> list[Any]:
    """Return the ACLs of a topic."""
    admin = AdminClient({"bootstrap.servers": locked.bootstrap})
    return list(admin.describe_acls(filter_of(topic, AclOperation.ANY)).result(PATIENCE_S))


def revoke(locked: KafkaCluster, topic: str, operation: AclOperation) -> None:
    """Remove the ACL of one operation, and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": locked.bootstrap})
    for done in admin.delete_acls([filter_of(topic, operation)]).values():
        done.result(PATIENCE_S)
    until_true(lambda: all(one.operation != operation for one in acls(locked, topic)), "the removal")


def filter_of(topic: str, operation: AclOperation) -> AclBindingFilter:
    return AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None, operation, AclPermissionType.ANY)


async def exchange(bus: TopicBus) -> None:
    """Send a message and receive it."""
    sent = await bus.send(b"x")
    assert await received(bus, 1) == [(*sent, b"x")]


async def test_a_member_that_may_create_the_topic(locked: KafkaCluster, tools: JavaTools, members: TopicMembers) -> None:
    """Without rights `start` names the command with all of them, Create too, and after that the topic is created and used."""
    topic = f"fleet-acl-{next(_numbers)}"
    bus = members.bus(topic)
    problem = await problem_of(bus.start())
    assert problem.startswith(DENIED)
    assert "Create" in await permit(tools, locked, problem)
    await bus.start()
    await exchange(bus)


async def test_a_member_without_create(locked: KafkaCluster, tools: JavaTools, members: TopicMembers) -> None:
    """With `create = false` the command leaves Create out, and that is enough for an existing topic."""
    bus = members.bus(new_topic(locked.bootstrap, "fleet-acl-existing", config=CONFIGS), create=False)
    problem = await problem_of(bus.start())
    assert problem.startswith(DENIED)
    assert "Create" not in await permit(tools, locked, problem)
    await bus.start()
    await exchange(bus)


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.WRITE])
async def test_a_right_that_is_taken_away(locked: KafkaCluster, tools: JavaTools, members: TopicMembers, operation: AclOperation) -> None:
    """A member that may not read or write any more names the command in the call that fails."""
    bus = members.bus(new_topic(locked.bootstrap, "fleet-acl-taken", config=CONFIGS))
    await permit(tools, locked, await problem_of(bus.start()))
    await bus.start()
    await exchange(bus)
    revoke(locked, bus.name.removeprefix("topic:"), operation)
    work = bus.receive() if operation == AclOperation.READ else bus.send(b"x")
    problem = await problem_of(work)
    assert problem.startswith(DENIED)
    await permit(tools, locked, problem)
    await bus.send(b"y")
    assert len(await received_despite_errors(bus, b"y")) == 1


async def test_settings_that_may_not_be_read(locked: KafkaCluster, tools: JavaTools, members: TopicMembers) -> None:
    """Without DescribeConfigs a member starts, unchecked; a wrong clock of the topic is still noticed by `send`."""
    topic = new_topic(locked.bootstrap, "fleet-acl-unread", config={"message.timestamp.type": "CreateTime"})
    bus = members.bus(topic)
    await permit(tools, locked, await problem_of(bus.start()))
    revoke(locked, topic, AclOperation.DESCRIBE_CONFIGS)
    await bus.start()
    assert "has message.timestamp.type=CreateTime; run: kafka-configs.sh " in await problem_of(bus.send(b"x"))
    run_remedy(tools, await problem_of(bus.send(b"x")), bootstrap=locked.bootstrap)
