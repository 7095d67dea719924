"""Rows B1 to B12 with ZooKeeper: it is down, slow, inaccessible or full of invalid data; the last good quotas hold, and nothing is lost."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from proxy.quota_store.file.quota_file import read_quota_text
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import StoreUnavailable
from proxy.quota_store.zookeeper import client as zookeeper_client
from proxy.quota_store.zookeeper import znode_reader
from proxy.quota_store.zookeeper.access import Access
from proxy.quota_store.zookeeper.client import ZookeeperClient
from proxy.quota_store.zookeeper.reads import read_children, read_nodes
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey, entity_key
from tests.support.kafka.zookeeper import ZookeeperServer
from tests.support.processes.stores import Nodes, Opened, Place, new_chroot, opened_place, zookeeper_place

pytestmark = pytest.mark.kafka

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
ALICE, BOB = entity_key([("user", "alice")]), entity_key([("user", "bob")])
_numbers = itertools.count()


def user(name: str) -> EntityKey:
    return entity_key([("user", name)])


@pytest.fixture
def connect(zookeeper: ZookeeperServer) -> str:
    """Return a connect string with a new chroot."""
    return new_chroot(zookeeper, f"faults-{next(_numbers)}")


@pytest.fixture
def nodes(connect: str) -> Iterator[Nodes]:
    """Return a client that reads and writes the nodes below that chroot."""
    nodes = Nodes(connect)
    yield nodes
    nodes.close()


@pytest.fixture
async def place(connect: str) -> AsyncIterator[Place]:
    """Return a place for stores on that chroot."""
    async with opened_place(zookeeper_place(connect)) as place:
        yield place


@contextlib.asynccontextmanager
async def free_loop() -> AsyncIterator[Iterator[int]]:
    """Count event-loop turns, one every 10 ms; the next number is the count so far."""
    turns = itertools.count()

    async def turn() -> None:
        while True:
            await asyncio.sleep(0.01)
            next(turns)

    turning = asyncio.create_task(turn())
    try:
        yield turns
    finally:
        turning.cancel()


@contextlib.asynccontextmanager
async def closed_on_failure(opened: Opened) -> AsyncIterator[None]:
    """Close a store when the test fails: its threads would go on beside other tests."""
    try:
        yield
    except BaseException:
        await opened.close()
        raise


async def test_b1_a_start_without_zookeeper_waits_for_it(tmp_path: Path) -> None:
    """A start without ZooKeeper waits for it without blocking the event loop, and a start with a snapshot uses the snapshot until ZooKeeper
    answers.
    """
    async with contextlib.AsyncExitStack() as stack:
        server = ZookeeperServer("zookeeper-late")
        stack.callback(server.kill)
        snapshot = tmp_path / "snapshot.toml"
        snapshot.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = 5\n')
        async with opened_place(zookeeper_place(server.address)) as place, free_loop() as turns:
            waiting, kept = Opened(place._make), Opened(zookeeper_place(server.address, snapshot=Snapshot(snapshot, wait_s=0.3))._make)
            for opened in (waiting, kept):
                await stack.enter_async_context(closed_on_failure(opened))
            starting = asyncio.create_task(waiting.start())
            await kept.start()
            assert kept.content.quotas == {ALICE: {PRODUCE: 5.0}}
            assert not starting.done()
            for opened in (waiting, kept):
                assert opened.store.status.error == f"zookeeper:{server.address}: is not read yet"
                with pytest.raises(StoreUnavailable, match="is not connected; try again, nothing was changed"):
                    await opened.alter(Change(BOB, PRODUCE, 1.0))
            await asyncio.to_thread(server.start)
            await asyncio.wait_for(starting, 15)
            await kept.until(lambda content: not content.quotas)
            await kept.alter(Change(BOB, PRODUCE, 1.0))
            await waiting.until(lambda content: BOB in content.quotas)
            await waiting.close()
            await kept.close()
            assert read_quota_text(snapshot.read_bytes(), "s").quotas == {BOB: {PRODUCE: 1.0}}
            assert next(turns) > 10, "nothing waits on the loop"


async def test_b2_b3_b6_zookeeper_goes_and_comes_back_changed(tmp_path: Path) -> None:
    """While ZooKeeper is down the last good quotas hold and changes are refused; when it is back, everything is read again."""
    with ZookeeperServer("zookeeper-lost") as server:
        async with opened_place(zookeeper_place(server.address)) as place:
            nodes = await asyncio.to_thread(Nodes, server.address)
            for name in ("alice", "bob"):  # before a store follows, so that no notification of these nodes is pending below
                nodes.write(f"/config/users/{name}", b'{"version":1,"config":{"producer_byte_rate":"1"}}')
            opened = await place.open()
            nodes.write("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"3"}}')  # without a notification
            nodes.delete("/config/users/bob")
            nodes.close()
            server.kill()
            await until(lambda: opened.store.status.error is not None)
            assert opened.store.status.error == (
                f"zookeeper:{server.address}: is not connected; the last quotas that were read apply until it responds"
            )
            with pytest.raises(StoreUnavailable, match="is not connected"):
                await opened.alter(Change(ALICE, PRODUCE, 2.0))
            assert not await opened.store.reload()
            assert opened.content.quotas == {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 1.0}}
            await asyncio.to_thread(server.start)
            await opened.until(lambda content: content.quotas == {ALICE: {PRODUCE: 3.0}})
            assert opened.store.status.error is None
            await opened.alter(Change(ALICE, FETCH, 4.0))
            assert opened.content.quotas == {ALICE: {PRODUCE: 3.0, FETCH: 4.0}}


async def until(good: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 30
    while not good():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


FREEZES_MAX = 10


async def test_b2_a_silent_zookeeper_delays_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """While ZooKeeper does not answer, a change ends with an unknown result and the event loop is not blocked."""
    monkeypatch.setattr("proxy.quota_store.zookeeper.client.CALL_S", 0.5)
    with ZookeeperServer("zookeeper-frozen") as server:
        async with opened_place(zookeeper_place(server.address)) as place, free_loop() as turns:
            opened = await place.open()
            await opened.alter(Change(ALICE, PRODUCE, 1.0))
            assert await opened.store.reload()
            for _ in range(FREEZES_MAX):
                server.freeze()
                with pytest.raises(StoreUnavailable) as caught:
                    await opened.alter(Change(ALICE, PRODUCE, 2.0))
                if not caught.value.is_certain:
                    break
                server.thaw()  # on a busy machine the session may be lost before, and then the change is refused for certain
                await until(lambda: opened.store.status.error is None)
            assert "no answer in 0 s; whether the change was made is known when it responds again" in str(caught.value)
            assert opened.content.quotas == {ALICE: {PRODUCE: 1.0}}
            await until(lambda: opened.store.status.error is not None)
            server.thaw()
            await opened.until(lambda content: content.quotas[ALICE][PRODUCE] in (1.0, 2.0))
            await until(lambda: opened.store.status.error is None)
            await opened.alter(Change(ALICE, PRODUCE, 3.0))
            assert opened.content.quotas == {ALICE: {PRODUCE: 3.0}}
            assert next(turns) > 10, "nothing waits on the loop"


async def test_b4_rubbish_in_a_node_keeps_what_was_good_there(place: Place, nodes: Nodes) -> None:
    """Invalid data in a node keeps the last good quota of that node, does not affect other nodes, and is never overwritten by Sluice."""
    opened = await place.open()
    await opened.alter(Change(ALICE, PRODUCE, 1.0), Change(BOB, PRODUCE, 1.0))
    for path, data in (
        ("users/alice", b'{"version":1,"config":{"producer_by'),
        ("users/bob", b'{"version":1,"config":{"producer_byte_rate":"7"}}'),
    ):
        nodes.write(f"/config/{path}", data)
        nodes.notify(b'{"version":2,"entity_path":"%s"}' % path.encode())
    for rubbish in (b"", b"\xff\x00", b"[]", b'{"version":2}', b'{"version":1,"entity_type":"topics","entity_name":"t"}', b"[" * 10_000):
        nodes.notify(rubbish)
    nodes.write("/config/users/%zz", b"{}")
    nodes.notify(b'{"version":1,"entity_type":"clients","entity_name":"c"}')
    await opened.until(lambda content: content.quotas == {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 7.0}})
    status = opened.store.status
    assert (status.error, status.rejected) == (None, 1)
    with pytest.raises(StoreUnavailable, match="/config/users/alice: is not JSON; repair or delete the node first"):
        await opened.alter(Change(ALICE, PRODUCE, 2.0))
    assert nodes.get("/config/users/alice") == b'{"version":1,"config":{"producer_by'
    nodes.write("/config/clients/c", b'{"version":1,"config":{"producer_byte_rate":"8"}}')
    nodes.notify(b'{"version":1,"entity_type":"clients","entity_name":"c"}')
    await opened.until(lambda content: content.quotas.get(entity_key([("client-id", "c")])) == {PRODUCE: 8.0})
    nodes.delete("/config/users/alice")
    assert await opened.store.reload()
    assert ALICE not in opened.content.quotas
    assert opened.store.status.rejected == 1, "the node with the name that is none"


async def test_b5_many_changes_and_many_entities(place: Place, nodes: Nodes) -> None:
    """After many creations, changes and deletions of a node its last state holds, and entities of more than one batch are all read."""
    opened, other = await place.open(), await place.open()
    await opened.alter(*(Change(user(f"u{number}"), PRODUCE, 1.0) for number in range(450)))
    for number in range(100):
        nodes.write("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"%d"}}' % (number + 1))
        nodes.notify(b'{"version":2,"entity_path":"users/alice"}')
        if number % 10 == 9:
            nodes.delete("/config/users/alice")
            nodes.notify(b'{"version":2,"entity_path":"users/alice"}')
    nodes.write("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"77"}}')
    nodes.notify(b'{"version":2,"entity_path":"users/alice"}')
    for store in (opened, other):
        await store.until(lambda content: content.quotas.get(ALICE) == {PRODUCE: 77.0} and len(content.quotas) == 451)


async def test_a_zookeeper_that_cannot_read_many_nodes_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ZooKeeper before 3.6, which does not support multi-read requests, each node is read by a request of its own."""
    opened = await place.open()
    names = [entity_key([("user", f"user-{number}"), ("client-id", "etl")]) for number in range(300)]
    await opened.alter(*(Change(name, PRODUCE, 5.0) for name in names))
    monkeypatch.setattr(zookeeper_client, "read_nodes", lambda paths: read_nodes(paths)._replace(type=77))
    monkeypatch.setattr(zookeeper_client, "read_children", lambda paths: read_children(paths)._replace(type=77))
    other = await place.open()
    assert other.content == opened.content
    await other.alter(Change(ALICE, PRODUCE, 6.0))
    await opened.until(lambda content: content.quotas.get(ALICE) == {PRODUCE: 6.0})


async def test_old_notifications_are_removed(place: Place, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notifications that are more than 15 minutes older than the newest one are removed, as brokers do."""
    monkeypatch.setattr(znode_reader, "KEPT_MS", -1)
    opened = await place.open()
    for number in range(5):
        await opened.alter(Change(ALICE, PRODUCE, 1.0 + number))
    await until(lambda: len(nodes.notifications()) < 3)


async def test_b7_what_sluice_may_not_read_or_write(place: Place, nodes: Nodes, connect: str) -> None:
    """A node without read permission keeps its last good values, a tree without it sets the state of the store, and a denied change is not
    made.
    """
    opened = await place.open()
    await opened.alter(Change(ALICE, PRODUCE, 1.0), Change(BOB, PRODUCE, 1.0))
    owner = KazooClient(connect, auth_data=[("digest", "owner:secret")])
    owner.start()
    only_owner = [make_digest_acl("owner", "secret", all=True)]
    owner.set_acls("/config/users/alice", only_owner)
    nodes.write("/config/users/bob", b'{"version":1,"config":{"producer_byte_rate":"2"}}')
    assert await opened.store.reload()
    assert opened.content.quotas == {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 2.0}}
    assert opened.store.status.rejected == 1
    with pytest.raises(StoreUnavailable, match=r"denies Sluice permission to change quotas \(NoAuth\); nothing was changed"):
        await opened.alter(Change(ALICE, PRODUCE, 5.0))
    owner.set_acls("/config/changes", only_owner)
    assert not await opened.store.reload()
    assert (
        opened.store.status.error == f"zookeeper:{connect}: denies Sluice permission to read the quotas (NoAuth); check the ACLs of /config"
    )
    assert opened.content.quotas == {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 2.0}}
    async with opened_place(zookeeper_place(connect, access=Access(digest="owner:secret"))) as owners:
        theirs = await owners.open()
        await theirs.alter(Change(ALICE, PRODUCE, 6.0))
        assert theirs.content.quotas[ALICE] == {PRODUCE: 6.0}
    owner.stop()
    owner.close()


async def test_a_tree_that_is_no_kafkas_is_not_taken_for_one_without_quotas(connect: str) -> None:
    """With a misspelt chroot the start waits, and the state says why."""
    opened = Opened(zookeeper_place(f"{connect}/slip", creates=False)._make)
    starting = asyncio.create_task(opened.start())
    await until(lambda: "has no /config/changes" in (opened.store.status.error or ""))
    assert not starting.done()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await opened.close()


class Wedged(ZookeeperClient):
    """A client whose first read never returns, like one whose writing thread is stuck."""

    def __init__(self, connect: str, on_connected: Callable[[bool], None], ended: threading.Event) -> None:
        super().__init__(connect, on_connected)
        self._ended = ended

    def children(self, path: str, watch: Callable[[Any], None] | None = None) -> list[str]:
        self._ended.wait(60)
        return super().children(path, watch)


async def test_b12_a_wedged_client_is_replaced(connect: str, caplog: pytest.LogCaptureFixture) -> None:
    """A client that returns nothing is replaced by a new one, which works, and it delays no other request."""
    ended, made = threading.Event(), itertools.count()

    def make_client(on_connected: Callable[[bool], None]) -> ZookeeperClient:
        return Wedged(connect, on_connected, ended) if next(made) == 0 else ZookeeperClient(connect, on_connected)

    async with opened_place(zookeeper_place(connect, stalled_ms=1_500, make_client=make_client)) as place:
        opened = Opened(place._make)
        starting = asyncio.create_task(opened.start())
        following = asyncio.create_task(opened.store.follow_forever())
        await asyncio.wait_for(starting, 30)
        await opened.alter(Change(ALICE, PRODUCE, 1.0))
        assert opened.content.quotas == {ALICE: {PRODUCE: 1.0}}
        assert "zookeeper_client_replaced" in [record.getMessage() for record in caplog.records]
        following.cancel()
        await opened.close()
    ended.set()
