"""Row A10: no byte that is sent to a client contains a broker's real host, for every API and version whose responses carry addresses."""

import json
from functools import cache
from typing import Any

import pytest

from protocol.api_keys import API_VERSIONS, ApiVersion, Treatment
from protocol.messages.addresses import splice_report
from proxy.base.close_reason import CloseReason
from tests.support.frames.kafka_frames import endpoint, fetch, fetched, metadata, metadata_answer, produce, produced
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.places import ROOT
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_frames import Node, Request, metadata_request
from tests.support.scripted.scripted_sockets import HOST

FRAMES = ROOT / "tests" / "vectors" / "frames"
CUTS = (1, 7, 64, 1 << 30)
SHORTEST_HOST = 4
"""Shorter hosts could occur by chance."""


@cache
def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file of golden frames."""
    found: list[dict[str, Any]] = json.loads((FRAMES / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    return found


@cache
def requests() -> dict[tuple[int, int], bytes]:
    """Return a golden request for each API and version."""
    return {(case["key"], case["version"]): bytes.fromhex(case["frame"]) for case in cases("requests")}


def hosts_in(api: ApiVersion, answer: bytes) -> set[bytes]:
    """Return the hosts that a response names and that are long enough to be searched for."""
    hosts: set[str] = set()
    splice_report(api, answer, lambda _node_id, host, _port: hosts.add(host))  # type: ignore[func-returns-value]
    return {host.encode() for host in hosts if len(host) >= SHORTEST_HOST}


def ours(node_id: int, _host: str, _port: int) -> tuple[str, int] | None:
    """Return the address that clients use for a broker."""
    return ("ours", 20_000 + node_id % 1_000) if node_id >= 0 else None


def golden() -> list[dict[str, Any]]:
    """Return every golden response with addresses."""
    return cases("addresses") + cases("addresses-real")


@pytest.mark.parametrize("cut", CUTS)
def test_a10_no_golden_answer_gives_a_host_away(cut: int) -> None:
    """Each golden response reaches the client without any real host, or the connection closes with `unmapped` and nothing is sent."""
    scanned, closed, seen = 0, 0, set()
    with ProxyFixture() as proxy:
        for case in golden():
            api = API_VERSIONS[case["key"] << 16 | case["version"]]
            answer = bytes.fromhex(case["frame"])
            hosts = hosts_in(api, answer)
            request = bytearray(requests()[case["key"], case["version"]])
            request[8:12] = answer[4:8]
            proxy.closed.clear()
            peer = proxy.connect(ours)
            peer.client.arrive(bytes(request))
            for at in range(0, len(answer), cut):
                peer.broker.arrive(answer[at : at + cut])
            proxy.wait(0)
            left = peer.client.take()
            for host in hosts:
                assert host not in left, case["name"]
            if proxy.closed:
                closed += 1
                assert proxy.closed[0][0] is CloseReason.UNMAPPED, case["name"]
                assert proxy.counters.unmapped == closed
                assert left == b"", case["name"]
            else:
                assert int.from_bytes(left[:4], "big") + 4 == len(left), case["name"]
            scanned += len(hosts) > 0
            seen.add(api.index)
            peer.connection.close(CloseReason.SHUTDOWN)
    assert scanned > 250
    assert closed < 40, "only answers that name controllers may be refused"
    assert seen >= {api.index for api in API_VERSIONS.values() if api.splice and api.treatment is not Treatment.REFUSE}


def test_a10_a_broker_without_a_port_is_not_shown() -> None:
    """A response that names a broker without a port at Sluice sends no real host to the client."""
    with ProxyFixture() as proxy:
        for case in golden():
            answer = bytes.fromhex(case["frame"])
            if not any(node_id >= 0 for node_id in case["ids"]) or case.get("controllers"):
                continue
            request = bytearray(requests()[case["key"], case["version"]])
            request[8:12] = answer[4:8]
            peer = proxy.connect(lambda _node_id, _host, _port: None)
            peer.client.arrive(bytes(request))
            peer.broker.arrive(answer)
            left = peer.client.take()
            for host in hosts_in(API_VERSIONS[case["key"] << 16 | case["version"]], answer):
                assert host not in left, case["name"]
            peer.connection.close(CloseReason.SHUTDOWN)
    assert proxy.closed


REAL = "secret-broker-7.internal.example"


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("size", [10, 300_000])
async def test_a10_a_fetch_that_passes_in_pieces(version: int, size: int) -> None:
    """A Fetch response that is forwarded in pieces has its node endpoints rewritten, although its length was forwarded before."""
    broker_answer = b""

    async def with_endpoints(connection: BrokerConnection, request: Request) -> None:
        nonlocal broker_answer
        if request.key != 1:
            await connection.answer(request)
            return
        endpoints = [endpoint(1, REAL, 9_092), endpoint(2, REAL, 9_093)]
        broker_answer = fetched(request.correlation_id, size=size, version=version, endpoints=endpoints)
        await connection.send(broker_answer)

    async with ScriptedBroker(with_endpoints) as broker, open_gateway(broker) as sluice:
        await (await sluice.client()).ask(metadata_request(1))
        client = await sluice.client()
        answer = await client.ask(fetch(1, version=version))
        assert REAL.encode() in broker_answer
        assert REAL.encode() not in answer
        assert b"127.0.0.1" in answer
        sluice.allow_descriptors(4)


@pytest.mark.parametrize("version", range(14))
async def test_a10_metadata(version: int) -> None:
    """Every version of a Metadata response arrives with the addresses of Sluice in place of those that the broker advertises."""

    async def advertise(connection: BrokerConnection, request: Request) -> None:
        await connection.send(metadata_answer(request.correlation_id, {1: (REAL, 9_092), 3: ("10.20.30.40", 9_092)}, request.version))

    async with ScriptedBroker(nodes=[]) as broker:
        broker.nodes = [Node(1, HOST, broker.port)]
        async with open_gateway(broker) as sluice:
            broker.script = advertise
            client = await sluice.client()
            answer = await client.ask(metadata(1, version))
            assert REAL.encode() not in answer
            assert b"10.20.30.40" not in answer
            assert answer.count(b"127.0.0.1") == 2
            sluice.allow_descriptors(2)


@pytest.mark.parametrize("version", [10, 11, 12, 13])
async def test_a10_produce_with_new_leaders(version: int) -> None:
    """The node endpoints of a Produce error response (KIP-951) are rewritten to the addresses of Sluice."""

    async def moved(connection: BrokerConnection, request: Request) -> None:
        if request.key == 0:
            await connection.send(produced(request.correlation_id, version=version, endpoints=[endpoint(1, REAL, 9_092)]))
        else:
            await connection.answer(request)

    async with ScriptedBroker(moved) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        answer = await client.ask(produce(1, version=version))
        assert REAL.encode() not in answer
        assert b"127.0.0.1" in answer
