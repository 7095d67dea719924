"""A real client behind a load balancer that sends PROXY headers has its own address in Sluice."""

import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.balancers.proxy_relay import Header, ProxyRelay
from tests.support.clients import confluent
from tests.support.places import temporary_directory
from tests.support.ports import free_bootstrap_port
from tests.support.processes.sluice_process import SluiceProcess
from tests.support.scripted.proxy_headers import v1_header, v2_header

BALANCER, BALANCER_INSIDE = "127.0.0.2", "127.9.0.1"


@pytest.mark.mock
@pytest.mark.parametrize("header", [v1_header, v2_header], ids=["v1", "v2"])
def test_librdkafka_through_a_balancer(mock_cluster: MockCluster, header: Header) -> None:
    """librdkafka produces and consumes through a balancer, and Sluice's log names the client's addresses, not the balancer's."""
    topic = f"balanced-{header.__name__}"
    mock_cluster.create_topic(topic, 4)
    values = [str(number).encode() for number in range(2_000)]
    port = free_bootstrap_port()
    with temporary_directory("balancer") as directory:
        config = directory / "sluice.toml"
        config.write_text(
            f'[[listener]]\naddress = "127.0.0.1:{port}"\nadvertised_host = "{BALANCER}"\nproxy_protocol_from = ["{BALANCER_INSIDE}"]\n'
        )
        sluice = SluiceProcess(mock_cluster.bootstrap, port=port, arguments=["--config", str(config)], name=f"sluice-{topic}")
        with sluice, ProxyRelay(BALANCER, sluice.ports, "127.0.0.1", BALANCER_INSIDE, header) as relay:
            bootstrap = f"{BALANCER}:{port}"
            assert confluent.produce(bootstrap, topic, values, settings={"partitioner": "murmur2_random"}) == len(values)
            assert sorted(message.value() for message in confluent.read_all(bootstrap, topic, partitions=4)) == sorted(values)
            assert sluice.metric("kafka_sluice_proxy_headers_total", outcome="address") == len(relay.clients) > 4
        peers = {event["peer"] for event in sluice.events("connection_closed")}
    assert peers == {f"{host}:{port}" for host, port in relay.clients}
