"""@platformatic/kafka, a client for Node.js, through Sluice: records, logins, quotas. Its retries are off, so that every failure shows."""

import time
from pathlib import Path
from typing import Any

import pytest

from quota.entity import sanitize
from tests.integration.conftest import Route
from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.processes.node_clients import client_options, login, play, require_node
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.kafka
CLIENT_ID = "node"
COUNT, SIZE = 500, 200
RATE = 100_000
PATIENT = {"retries": 20, "retryDelay": 500}
"""The first group of a broker waits for its coordinator."""
THROTTLED = {"count": 65, "bytes": 20_000, "batch": 5}
BEYOND_FIRST_BURST = 2.0
"""Seconds: 1.3 MB at 100 kB/s take 13; the first 10 are in the burst, and the last batch is answered before its throttle."""


@pytest.fixture(autouse=True)
def node() -> None:
    """Skip all tests of this file when the client is not available."""
    require_node()


def fine(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of a script; fail if a step failed."""
    assert [line for line in lines if "error" in line] == []
    return lines


def test_records_go_in_and_come_out(route: Route) -> None:
    """Records that the client produces through Sluice are stored once and in order, and the client reads the same records."""
    topic = route.new_topic("node-plain")
    produce = {"do": "produce", "topic": topic, "count": COUNT, "bytes": SIZE, "batch": 50}
    consume = {"do": "consume", "topic": topic, "count": COUNT, "group": topic, "options": PATIENT}
    _, consumed = fine(play(client_options(route.bootstrap, CLIENT_ID), [produce, consume]))
    assert (consumed["consumed"], consumed["bytes"], consumed["ordered"]) == (COUNT, COUNT * SIZE, True)
    assert confluent.stored_count(route.direct, topic, 1) == COUNT


@pytest.fixture(scope="module")
def sasl_sluice(sasl_kafka: KafkaCluster) -> Any:
    """Sluice in front of a broker with SASL."""
    with SluiceProcess(sasl_kafka.sasl_bootstrap, name="sluice-node-sasl") as sluice:
        yield sluice


@pytest.mark.parametrize(
    ("mechanism", "user"), [("PLAIN", "alice"), ("SCRAM-SHA-256", sasl.SCRAM_USER), ("SCRAM-SHA-512", "alice")], ids=lambda value: value
)
def test_it_is_who_it_logged_in_as(mechanism: str, user: str, sasl_sluice: SluiceProcess, sasl_kafka: KafkaCluster) -> None:
    """With each mechanism the client's bytes count for its user, and a wrong password gives an authentication error."""
    topic = new_topic(sasl_kafka.bootstrap, f"node-{mechanism.lower()}")
    step = {"do": "produce", "topic": topic, "count": COUNT, "bytes": SIZE}
    labels = {"direction": "produce", "user": user.replace('"', '\\"'), "client_id": CLIENT_ID}
    before = sasl_sluice.metric("kafka_quota_bytes_total", **labels)
    known = login(mechanism, user, sasl.PASSWORD)
    wrong = login(mechanism, user, sasl.PASSWORD + "-wrong")
    fine(play(client_options(sasl_sluice.bootstrap, CLIENT_ID, **known), [step]))
    assert sasl_sluice.metric("kafka_quota_bytes_total", **labels) - before >= COUNT * SIZE, sanitize(user)
    (refused,) = play(client_options(sasl_sluice.bootstrap, CLIENT_ID, **wrong), [step])
    assert "AuthenticationError" in names_in(refused["error"])
    assert sasl_sluice.metric("kafka_sluice_internal_errors_total") == 0


def names_in(error: dict[str, Any]) -> set[str]:
    """Return the names of an error and of all its causes."""
    return {error["name"]}.union(*(names_in(inner) for inner in error["errors"]))


@pytest.mark.parametrize("mode", ["delay", "mute"])
def test_it_is_held_to_its_quota(mode: str, kraft: KafkaCluster, tmp_path: Path) -> None:
    """A client that sends twice its burst takes as long as the quota demands, every record is stored once, and no connection is closed
    by Sluice.
    """
    topic = new_topic(kraft.bootstrap, f"node-throttled-{mode}")
    quotas = write_quotas(tmp_path / "quotas.toml", [{"client-id": CLIENT_ID, "producer_byte_rate": RATE}])
    with SluiceProcess(kraft.bootstrap, quotas=quotas, enforcement=mode, name=f"sluice-node-{mode}") as sluice:
        began = time.monotonic()
        (line,) = fine(play(client_options(sluice.bootstrap, CLIENT_ID), [{"do": "produce", "topic": topic, **THROTTLED}]))
        took = time.monotonic() - began
        assert sluice.metric("kafka_quota_throttled_requests_total", client_id=CLIENT_ID) > 0
        closes = {event["reason"] for event in sluice.events("connection_closed")}
    print(f"{mode}: {took:.1f} s, slowest send {line['slowest_ms']} ms")
    assert took >= BEYOND_FIRST_BURST
    assert closes <= {"client_closed", "client_reset"}
    assert confluent.stored_count(kraft.bootstrap, topic, 1) == THROTTLED["count"]


def test_its_admin_reads_and_changes_quotas(kraft: KafkaCluster) -> None:
    """At a broker, a quota that the client sets can be described by name and by type, and a quota that it removes is gone."""
    entity = [{"entityType": "client-id", "entityName": "node-admin"}]
    named = {"do": "describe_quotas", "components": [{"entityType": "client-id", "matchType": 0, "match": "node-admin"}]}
    changes = [
        {"do": "alter_quotas", "entries": [{"entities": entity, "ops": [{"key": "producer_byte_rate", "value": 4096, "remove": False}]}]},
        {"do": "alter_quotas", "entries": [{"entities": entity, "ops": [{"key": "producer_byte_rate", "remove": True}]}]},
    ]
    lines = fine(play(client_options(kraft.bootstrap, CLIENT_ID), [changes[0]]))
    deadline = time.monotonic() + 20
    while not (found := fine(play(client_options(kraft.bootstrap, CLIENT_ID), [named]))[0]["entries"]):
        assert time.monotonic() < deadline
    assert found == [{"entity": entity, "values": [{"key": "producer_byte_rate", "value": 4096}]}]
    lines = fine(play(client_options(kraft.bootstrap, CLIENT_ID), [changes[1]]))
    assert len(lines) == 1
