"""What the ZooKeeper thread reports of changes that arrive while it reads; its jobs are run by hand."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest

from proxy.quota_store.remote import StoreState
from proxy.quota_store.store import StoreContent
from proxy.quota_store.zookeeper.reads import Node
from proxy.quota_store.zookeeper.worker import ZookeeperWorker
from proxy.quota_store.zookeeper.znode_codec import CHANGES, write_config, write_switches
from proxy.quota_store.zookeeper.znode_reader import ZnodeReader
from proxy.quota_store.zookeeper.znode_tree import ZnodeTree
from quota.admin.messages import entity_key

ALICE = entity_key([("user", "alice")])
RATE = "producer_byte_rate"


class Reading:
    """A reader that runs the test's steps."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.newer = False

    def read_changes(self) -> bool:
        self.steps.pop(0)()
        return False

    def has_newer_changes(self) -> bool:
        return self.newer


@pytest.fixture
def reported() -> list[StoreState]:
    return []


@pytest.fixture
def worker(reported: list[StoreState]) -> ZookeeperWorker:
    """Return a worker that is connected and has read everything."""
    made = ZookeeperWorker(lambda _connection_changed: Any, "zookeeper", lambda _worker, one: reported.append(one), None, lambda: 0)
    made._connected = made._whole = True
    made._reader = Reading()
    return made


def run_jobs(worker: ZookeeperWorker) -> None:
    while not worker._jobs.empty():
        job = worker._jobs.get()
        assert job is not None
        job()


def reads(worker: ZookeeperWorker, *steps: Callable[[], None]) -> None:
    worker._reader.steps += steps
    worker._watched(None)
    run_jobs(worker)


def put_quota(worker: ZookeeperWorker, rate: int) -> None:
    worker.tree.put("users/alice", Node(write_config({RATE: str(rate)}), rate, 0))


def put_switch(worker: ZookeeperWorker, mode: str) -> None:
    worker.tree.put_switches(Node(write_switches({"switches": {"all": mode}}), 1, 0))


def test_a_change_that_comes_while_it_is_read_is_reported_whole(worker: ZookeeperWorker, reported: list[StoreState]) -> None:
    """A change that is read in two parts is reported once, complete, because a watch has fired in between."""

    def half() -> None:
        put_switch(worker, "off")
        worker._watched(None)

    reads(worker, half, lambda: put_quota(worker, 2))
    assert [one.content for one in reported] == [StoreContent({ALICE: {RATE: 2.0}}, {"all": "off"})]


def test_a_change_whose_watch_is_called_late_is_reported_whole(worker: ZookeeperWorker, reported: list[StoreState]) -> None:
    """A change that is read in two parts is reported once, complete, also when its watch is called after the first part was read."""

    def half() -> None:
        put_switch(worker, "off")
        worker._reader.newer = True

    def whole() -> None:
        put_quota(worker, 2)
        worker._reader.newer = False

    reads(worker, half)
    assert reported == []
    reads(worker, whole)
    assert [one.content for one in reported] == [StoreContent({ALICE: {RATE: 2.0}}, {"all": "off"})]


def test_a_reader_knows_of_changes_that_came_after_its_read_began() -> None:
    """`has_newer_changes` is true from the first notification after the last read until the next read."""

    class Client:
        names: ClassVar = ["config_change_0000000001"]

        def children(self, path: str, watch: Any = None) -> list[str]:
            return list(self.names) if path == CHANGES else []

        def exists(self, path: str, watch: Any = None) -> bool:
            return path == CHANGES

        def get_many(self, paths: Iterable[str]) -> list[tuple[str, None]]:
            return [(path, None) for path in paths]

        def created_ms(self, path: str) -> int:
            return 0

    client = Client()
    reader = ZnodeReader(client, ZnodeTree(None), lambda _: None, creates=False)
    reader.read_changes()
    assert not reader.has_newer_changes()
    client.names.extend(["other", "config_change_0000000002"])
    assert reader.has_newer_changes()
    reader.read_changes()
    assert not reader.has_newer_changes()


def test_changes_that_never_end_are_reported_all_the_same(worker: ZookeeperWorker, reported: list[StoreState]) -> None:
    """With a change during each read every second read is reported."""

    def another(rate: int) -> Callable[[], None]:
        def step() -> None:
            put_quota(worker, rate)
            worker._watched(None)

        return step

    reads(worker, *(another(rate) for rate in range(1, 6)), lambda: None)
    assert [one.content.quotas[ALICE][RATE] for one in reported] == [2, 4, 5]
