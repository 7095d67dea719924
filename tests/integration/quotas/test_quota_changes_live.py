"""kafka-configs changes a quota while clients run: it takes effect when the command ends, and no client is disconnected."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from tests.integration.conftest import Route
from tests.support.clients.topics import new_topic
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import CONFIG_COMMAND
from tests.support.patience import until_true
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
CLIENTS = 20


@contextmanager
def producers(bootstrap: str, topic: str) -> Iterator[list[int]]:
    """Twenty producers with one client-id and a connection each; yields the counts of delivered and failed records."""
    reported = [0, 0]
    over = threading.Event()

    def delivered(error: object, _message: object) -> None:
        reported[error is not None] += 1

    def run(producer: Producer) -> None:
        while not over.is_set():
            producer.produce(topic, b"x" * 500, on_delivery=delivered)
            producer.poll(0.02)
        producer.flush(60)

    made = [Producer({"bootstrap.servers": bootstrap, "client.id": "live", "linger.ms": 0}) for _ in range(CLIENTS)]
    threads = [threading.Thread(target=run, args=(producer,)) for producer in made]
    for thread in threads:
        thread.start()
    try:
        yield reported
    finally:
        over.set()
        for thread in threads:
            thread.join()


def bound_of(sluice: SluiceProcess) -> float | None:
    """Return the bound of the clients' group in /quotas; None when there is none."""
    groups = [group for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce" and group["tags"]["client-id"] == "live"]
    return groups[0]["bound"] if groups else None


def test_changed_while_twenty_clients_run(kraft_route: Route, tools: JavaTools) -> None:
    """A quota that is set, raised and deleted holds as each command ends, no client's connection closes, and no record is lost."""
    topic = new_topic(kraft_route.direct, "live-quotas", partitions=1)
    with SluiceProcess(kraft_route.direct, arguments=("--quota-admin", "User:ANONYMOUS"), name="sluice-live-quotas") as sluice:
        where = ("--bootstrap-server", sluice.bootstrap, "--entity-type", "clients", "--entity-name", "live", "--alter")
        with producers(sluice.bootstrap, topic) as reported:
            until_true(lambda: reported[0] > 10 * CLIENTS, "records of all")
            closed = len(closes_of_clients(sluice))
            tools.run(CONFIG_COMMAND, *where, "--add-config", "producer_byte_rate=200000")
            until_true(lambda: bound_of(sluice) == 200_000.0, "the first quota, with the clients' next requests")
            tools.run(CONFIG_COMMAND, *where, "--add-config", "producer_byte_rate=50000000")
            assert bound_of(sluice) == 50_000_000.0
            tools.run(CONFIG_COMMAND, *where, "--delete-config", "producer_byte_rate")
            assert bound_of(sluice) is None
            assert len(closes_of_clients(sluice)) == closed
        assert reported[1] == 0


def closes_of_clients(sluice: SluiceProcess) -> list[object]:
    """Return the closed connections of the producers, without those of kafka-configs."""
    return [event for event in sluice.events("connection_closed") if "live" in event.get("client_ids", ())]
