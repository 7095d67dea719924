"""What the ZooKeeper thread reports of changes that arrive while it reads; its jobs are run by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from proxy.quota_store.remote import StoreState
from proxy.quota_store.store import StoreContent
from proxy.quota_store.zookeeper.reads import Node
from proxy.quota_store.zookeeper.worker import ZookeeperWorker
from proxy.quota_store.zookeeper.znode_codec import write_config, write_switches
from quota.admin.messages import entity_key

ALICE = entity_key([("user", "alice")])
RATE = "producer_byte_rate"


class Reading:
    """A reader that runs the test's steps."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []

    def read_changes(self) -> bool:
        self.steps.pop(0)()
        return False


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


def test_changes_that_never_end_are_reported_all_the_same(worker: ZookeeperWorker, reported: list[StoreState]) -> None:
    """With a change during each read every second read is reported."""

    def another(rate: int) -> Callable[[], None]:
        def step() -> None:
            put_quota(worker, rate)
            worker._watched(None)

        return step

    reads(worker, *(another(rate) for rate in range(1, 6)), lambda: None)
    assert [one.content.quotas[ALICE][RATE] for one in reported] == [2, 4, 5]
