"""Clients reach gateways through HAProxy, which is configured as the documents say."""

from pathlib import Path
from typing import Final

import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.balancers.haproxy import HaProxy, documented_lines
from tests.support.clients import confluent
from tests.support.places import temporary_directory
from tests.support.ports import free_bootstrap_port
from tests.support.processes.sluice_process import SluiceProcess

BALANCER, BALANCER_INSIDE = "127.0.0.2", "127.9.0.2"
GATEWAYS: Final = {"10.0.0.11": "127.0.0.11", "10.0.0.12": "127.0.0.12"}
CLIENT: Final = "127.0.0.1"


def gateway(cluster: MockCluster, folder: Path, host: str, port: int) -> SluiceProcess:
    """Return a gateway behind the balancer."""
    config = folder / f"{host}.toml"
    config.write_text(
        f'[upstream]\nbootstrap = "{cluster.bootstrap}"\n[[listener]]\naddress = "{host}:{port}"\nadvertised_host = "{BALANCER}"\n'
        f'proxy_protocol_from = ["{BALANCER_INSIDE}"]\n'
    )
    return SluiceProcess(cluster.bootstrap, port=port, config=config, name=f"sluice-{host}")


@pytest.mark.mock
@pytest.mark.parametrize("header", ["send-proxy", "send-proxy-v2"])
def test_librdkafka_through_haproxy_with_the_lines_of_the_how_to(mock_cluster: MockCluster, header: str) -> None:
    """librdkafka produces and consumes through HAProxy and two gateways, both of which see the client's address."""
    topic = f"haproxy-{header}"
    mock_cluster.create_topic(topic, 4)
    values = [str(number).encode() for number in range(2_000)]
    port, lines = free_bootstrap_port(), documented_lines("docs/how-to/fleet.md").replace("send-proxy-v2", header)
    with temporary_directory("haproxy") as folder:
        one, other = (gateway(mock_cluster, folder, host, port) for host in GATEWAYS.values())
        with one, other, HaProxy(lines, folder, BALANCER, port, GATEWAYS, BALANCER_INSIDE):
            bootstrap = f"{BALANCER}:{port}"
            assert confluent.produce(bootstrap, topic, values, settings={"partitioner": "murmur2_random"}) == len(values)
            assert sorted(message.value() for message in confluent.read_all(bootstrap, topic, partitions=4)) == sorted(values)
        for proxy in (one, other):
            peers = {event["peer"].rpartition(":")[0] for event in proxy.events("connection_closed") if event["reason"] != "health_check"}
            assert peers == {CLIENT}
