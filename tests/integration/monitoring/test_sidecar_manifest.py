"""The sidecar example of deploy/kubernetes with a real Apache Kafka that has the settings of the manifest."""

import re
from pathlib import Path

import pytest

from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.kafka import settings
from tests.support.kafka.broker import KafkaNode
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_process import Jvm
from tests.support.kafka.settings import NodePorts
from tests.support.kubernetes.manifests import SIDECAR, objects, pod_of
from tests.support.kubernetes.running_pod import RunningPod
from tests.support.ports import free_port_range

pytestmark = pytest.mark.kafka

NODE_ID = 0
PREFIX = "KAFKA_"


def environment() -> dict[str, str]:
    """Return the variables of the broker's container; a pod's index is that of the first pod."""
    (kafka,) = pod_of(objects(SIDECAR))["spec"]["containers"]
    return {one["name"]: one.get("value", str(NODE_ID)) for one in kafka["env"]}


def properties(ports: NodePorts, sluice_port: int, folder: Path) -> dict[str, str]:
    """Return the properties that the image makes of its environment, for the first of three brokers alone on this machine.

    Args:
        ports: the ports of the broker in the place of those of the manifest.
        sluice_port: the port of Sluice in the place of the one that the broker advertises.
        folder: an empty folder for its log.
    """
    given = {name[len(PREFIX) :].lower().replace("_", "."): value for name, value in environment().items() if name.startswith(PREFIX)}
    here = {"19092": ports.client, "9094": ports.sasl, "9093": ports.controller, "9092": sluice_port}
    moved = {}
    for name, value in given.items():
        text = re.sub(
            r"(?<=:)(?:19092|9094|9093|9092)\b", lambda found: str(here[found[0]]), value.replace("$(POD_NAME).kafka", "127.0.0.1")
        )
        moved[name] = text.replace("0.0.0.0", "127.0.0.1").replace("kafka-0.kafka", "127.0.0.1")
    alone = {"controller.quorum.voters": moved["controller.quorum.voters"].split(",")[0], "log.dirs": str(folder)}
    return moved | alone | {"offsets.topic.replication.factor": "1"}


def test_clients_of_the_broker_go_through_its_sidecar(kraft_classes: None, tmp_path: Path) -> None:
    """A broker with the settings of the manifest starts, and its clients produce through Sluice, which alone they can reach."""
    first = free_port_range(3)
    ports = NodePorts(NODE_ID, client=first, sasl=first + 1, controller=first + 2)
    root = tmp_path / "root"
    root.mkdir()
    pod = RunningPod(SIDECAR, root, f"127.0.0.1:{ports.client}")
    config = tmp_path / "server.properties"
    settings.write_properties(config, properties(ports, pod.port, tmp_path / "data"))
    main = ["--format", environment()["CLUSTER_ID"], "kafka.Kafka", str(config)]
    node = KafkaNode(KRAFT, ports, main, "kafka-of-the-manifest", Jvm(), None)
    try:
        node.start()
        with pod:
            topic = new_topic(f"127.0.0.1:{pod.port}", "manifest")
            confluent.produce(f"127.0.0.1:{pod.port}", topic, [b"record"] * 100)
            assert confluent.stored_count(f"127.0.0.1:{pod.port}", topic, 1) == 100
            groups = pod.get("/quotas")[1]["groups"]
            assert any(group["quota_type"] == "Produce" and group["recorded_total"] > 0 for group in groups)
    finally:
        node.kill()
