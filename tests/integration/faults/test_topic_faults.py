"""Row B10: the quota topic is missing, unsuitable, full of invalid records, unreachable or recreated; the last good quotas hold."""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from proxy.quota_store.store import StoreUnavailable
from quota.admin.kraft import Change
from quota.admin.messages import entity_key
from tests.support.kafka.broker import KafkaCluster
from tests.support.patience import stop_process
from tests.support.processes.stores import Opened, Place, opened_place, topic_place

pytestmark = pytest.mark.kafka

PRODUCE = "producer_byte_rate"
ALICE, BOB = entity_key([("user", "alice")]), entity_key([("user", "bob")])
KEY = b'{"entity":{"user":"%s"},"key":"producer_byte_rate"}'
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """Return the name of a topic that no test has used."""
    return f"topic-faults-{next(_numbers)}"


@pytest.fixture
async def place(kraft: KafkaCluster, topic: str) -> AsyncIterator[Place]:
    """Return a place for stores in that topic."""
    async with opened_place(topic_place(kraft.bootstrap, topic)) as place:
        yield place


async def write(kraft: KafkaCluster, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Write records with another client."""
    async with AIOKafkaProducer(bootstrap_servers=kraft.bootstrap) as producer:
        for key, value in records:
            await producer.send_and_wait(topic, value, key=key, partition=0)


async def until_error(opened: Opened, text: str) -> None:
    """Wait until the state of a store has this error."""
    deadline = time.monotonic() + 30
    while text not in (opened.store.status.error or ""):
        assert time.monotonic() < deadline, opened.store.status
        await asyncio.sleep(0.01)


async def test_rubbish_changes_nothing_and_a_record_without_value_takes_away(place: Place, kraft: KafkaCluster, topic: str) -> None:
    """An invalid value keeps the last good quota until a valid one follows, a record without value removes the quota, and a second reader
    gets the same.
    """
    opened = await place.open()
    await opened.alter(Change(ALICE, PRODUCE, 1.0), Change(BOB, PRODUCE, 1.0))
    rubbish: list[tuple[bytes | None, bytes | None]] = [
        (b"x", b"{}"),
        (b"[]", None),
        (b'{"entity":{"team":"a"},"key":"producer_byte_rate"}', b"{}"),
        (b'{"entity":{"ip":"::1"},"key":"producer_byte_rate"}', b'{"version":1,"value":1}'),
        (KEY % b"alice", b'{"version":1,"value":'),
        (KEY % b"bob", None),
        (KEY % b"carl", b'{"version":1,"value":5}'),
    ]
    await write(kraft, topic, *rubbish)
    expected = {ALICE: {PRODUCE: 1.0}, entity_key([("user", "carl")]): {PRODUCE: 5.0}}
    await opened.until(lambda content: content.quotas == expected)
    assert (opened.store.status.error, opened.store.status.rejected) == (None, 4)
    assert (await place.open()).content.quotas == expected
    await write(kraft, topic, (KEY % b"alice", b'{"version":1,"value":2}'))
    await opened.until(lambda content: content.quotas[ALICE] == {PRODUCE: 2.0})


@pytest.mark.parametrize(
    ("partitions", "policy", "says"),
    [
        (0, "", "does not exist; create it with cleanup.policy=compact, or write create = true"),
        (2, "compact", "has 2 partitions; name a topic with one"),
        (1, "delete", "has cleanup.policy=delete, which would lose quotas; set cleanup.policy=compact"),
    ],
)
async def test_a_topic_that_would_lose_quotas_is_not_begun_with(
    kraft: KafkaCluster, topic: str, partitions: int, policy: str, says: str
) -> None:
    """The start waits on an unsuitable topic, and the state of the store names the remedy."""
    if partitions:
        await make_topic(kraft, topic, partitions, policy)
    opened = Opened(topic_place(kraft.bootstrap, topic, create=False)._make)
    starting = asyncio.create_task(opened.start())
    await until_error(opened, f"topic:{topic}: {says}")
    assert not starting.done()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await opened.close()


async def make_topic(kraft: KafkaCluster, topic: str, partitions: int, policy: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kraft.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs={"cleanup.policy": policy})])
    await admin.close()


async def test_a_topic_made_anew_empties_nothing(place: Place, kraft: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the topic is recreated the last good quotas hold and changes are refused, until an operator reloads."""
    monkeypatch.setattr("proxy.quota_store.topic.worker.SHORTER_TRIES", 1)
    monkeypatch.setattr("proxy.quota_store.topic.worker.POLL_INTERVAL_S", 0.2)
    monkeypatch.setattr("proxy.quota_store.topic.worker.RETRY_S", 0.2)
    opened = await place.open()
    await opened.alter(Change(ALICE, PRODUCE, 1.0))
    admin = AIOKafkaAdminClient(bootstrap_servers=kraft.bootstrap)
    await admin.start()
    await admin.delete_topics([topic])
    await admin.close()
    await until_error(opened, "is shorter than it was, or made anew")
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        await opened.alter(Change(BOB, PRODUCE, 1.0))
    assert opened.content.quotas == {ALICE: {PRODUCE: 1.0}}
    monkeypatch.setattr("proxy.quota_store.topic.worker.POLL_INTERVAL_S", 5.0)
    deadline = time.monotonic() + 30
    while not await opened.store.reload():
        assert time.monotonic() < deadline, opened.store.status
    assert opened.content.quotas == {}
    await opened.alter(Change(BOB, PRODUCE, 1.0))
    assert opened.content.quotas == {BOB: {PRODUCE: 1.0}}


async def test_silent_brokers_delay_no_client(kraft: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the broker does not answer, the last good quotas hold and a change is refused; afterwards changes work again."""
    monkeypatch.setattr("proxy.quota_store.topic.log.REQUEST_MS", 500)
    monkeypatch.setattr("proxy.quota_store.topic.worker.POLL_INTERVAL_S", 0.2)
    monkeypatch.setattr("proxy.quota_store.topic.worker.COMMIT_S", 1.0)
    async with opened_place(topic_place(kraft.bootstrap, topic)) as place:
        opened = await place.open()
        await opened.alter(Change(ALICE, PRODUCE, 1.0))
        (node,) = kraft.nodes.values()
        stop_process(node.process.pid)
        try:
            await until_error(opened, "the last quotas that were read apply until it responds")
            refused: Any = await asyncio.gather(opened.alter(Change(ALICE, PRODUCE, 2.0)), return_exceptions=True)
            assert isinstance(refused[0], StoreUnavailable)
            assert opened.content.quotas == {ALICE: {PRODUCE: 1.0}}
        finally:
            os.kill(node.process.pid, signal.SIGCONT)
        deadline = time.monotonic() + 30
        while opened.store.status.error is not None:
            assert time.monotonic() < deadline, opened.store.status
            await asyncio.sleep(0.01)
        await opened.alter(Change(ALICE, PRODUCE, 3.0))
        assert opened.content.quotas == {ALICE: {PRODUCE: 3.0}}
