"""The events of the live page from a proxy with several workers, as `sluice top` reads them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from proxy.demo.mock_cluster import MockCluster
from sluice_cli.admin.port import AdminPort
from sluice_cli.root import cli
from sluice_cli.top.groups import LiveState, left_ms
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.mock
PRODUCERS = 4
EVENTS_MAX = 30
"""One a second; the test goes on as soon as the group waits."""


@contextmanager
def producers(bootstrap: str) -> Iterator[None]:
    """Connections of one client-id beyond its quota; the supervisor spreads them over the workers."""
    over = threading.Event()

    def produce() -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": "shared", "linger.ms": 0, "acks": 1, "log_level": 0}
        producer = Producer({**settings, "queue.buffering.max.messages": 20})
        while not over.wait(0.05):
            try:
                producer.produce("workers", b"x" * 10_000)
            except BufferError:
                producer.poll(0.05)
        producer.purge()
        producer.flush(5)

    threads = [threading.Thread(target=produce) for _ in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_group_of_several_workers(tmp_path: Path) -> None:
    """A group whose members are in two workers is one row, can be opened with all its members, and `sluice top` prints it."""
    quotas = write_quotas(tmp_path / "quotas.toml", [{"client-id": "shared", "producer_byte_rate": 50_000.0}])
    with MockCluster(1) as cluster:
        cluster.create_topic("workers", 1)
        with SluiceProcess(cluster.bootstrap, quotas=quotas, arguments=("--workers", "2"), name="sluice-live-workers") as sluice:
            url = f"http://127.0.0.1:{sluice.admin_port}"
            port = AdminPort(url, None, None)
            with producers(sluice.bootstrap):
                state, number = _until_waiting(port)
                page = port.get("/ui/group", id=number)
                printed = CliRunner().invoke(cli, ["top", "--admin", url, "--once", "--format", "json", "--filter", "shared"])
    assert [worker["number"] for worker in state.head["workers"]] == [0, 1]
    assert page["members"]["connections"] >= PRODUCERS
    assert page["verdicts"][-1]["bound"] == 50_000.0
    (group,) = [one for one in json.loads(printed.stdout)["groups"] if one["quota_type"] == "Produce"]
    assert (group["name"], group["bound"]) == ("client-id=shared", 50_000.0)


def _until_waiting(port: AdminPort) -> tuple[LiveState, int]:
    """Follow the events until the group waits, and all its members are connected; return the state and the group's number."""
    state = LiveState()
    for count, (name, data) in enumerate(port.events("/ui/events")):
        state.apply(name, data)
        for number, group in state.groups.items():
            if left_ms(group, state.now_ms) and group["connections"] >= PRODUCERS:
                return state, number
        assert count < EVENTS_MAX, state.groups
    raise AssertionError("the stream ended")
