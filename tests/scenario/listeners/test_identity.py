"""Rows D12 and D19: client-ids, and a Fetch that carries a replica id."""

import pytest

from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import (
    FETCH,
    FETCH_VERSIONS,
    fetch_answer,
    fetch_request,
    produce_answer,
    produce_request,
    throttle_ms_of,
)

CLIENT_IDS = [
    pytest.param(None, id="null"),
    pytest.param(b"", id="empty"),
    pytest.param(b"\xff\xfe\x00\x80", id="no-utf-8"),
    pytest.param("größe \u2603 \U0001f980".encode(), id="utf-8"),
    pytest.param(b"line\nfeed\x00\x1b[31m", id="control-characters"),
    pytest.param(b"<default>", id="named-as-the-default"),
    pytest.param(b"%3Cdefault%3E", id="named-as-the-default-escaped"),
    pytest.param(b"x" * 32_767, id="32767-bytes"),
]


@pytest.mark.parametrize("client_id", CLIENT_IDS)
async def test_d12_client_ids_pass_as_they_are(client_id: bytes | None) -> None:
    """Any client-id reaches the broker unchanged, and its requests are answered and counted."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9, fetch=1e9)) as sluice:
        client = await sluice.client()
        frames = [
            produce_request(1, client_id=client_id),
            fetch_request(2, client_id=client_id),
            produce_request(3, version=3, client_id=client_id),
        ]
        for frame in frames:
            await client.ask(frame)
        assert broker.connections[0].received == b"".join(frames)
        recorded = [group.recorded_total for group in sluice.groups() if group.recorded_total]
        assert sum(recorded) >= len(frames[0]) + len(frames[2]) - 8
        assert len(list(sluice.app.state.connections(0, 10))) == 1


async def test_d12_ids_that_differ_late_never_share_a_group() -> None:
    """Two client-ids that differ only in byte 200 belong to two groups."""
    one, other = b"c" * 199 + b"1", b"c" * 199 + b"2"
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=10_000)) as sluice:
        client = await sluice.client()
        first = produce_request(1, bytes(40_000), version=7, client_id=one)
        second = produce_request(2, bytes(50_000), version=7, client_id=other)
        await client.ask(first)
        await client.ask(second)
        by_id = {group.tags["client-id"].encode(): group.recorded_total for group in sluice.groups()}
        assert by_id == {one: len(first) - 4, other: len(second) - 4}
        assert sluice.counters.throttles == {}


@pytest.mark.parametrize("empty_client_id", ["default-entity", "kafka"])
async def test_d12_null_and_empty_are_the_default_client(empty_client_id: str) -> None:
    """Without a client-id the default client-id's quota applies, or none with `empty_client_id = "kafka"`."""
    async with (
        ScriptedBroker() as broker,
        open_gateway(broker, mode="mute", table=quotas(produce=10_000), empty_client_id=empty_client_id) as sluice,
    ):
        for client_id in (None, b""):
            client = await sluice.client()
            await client.ask(produce_request(1, bytes(103_000), version=7, client_id=client_id))
        throttled = sum(sum(histogram.buckets) for histogram in sluice.counters.throttles.values())
        assert throttled == (2 if empty_client_id == "default-entity" else 0)


async def test_d12_one_connection_may_carry_many_clients() -> None:
    """Each request counts for its own client-id, even with more client-ids than a connection caches."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9)) as sluice:
        client = await sluice.client()
        expected: dict[str, int] = {}
        for at in range(200):
            name = f"client-{at % 40}"
            frame = produce_request(at, bytes(at), client_id=name.encode())
            assert await client.ask(frame) == produce_answer(9, at)
            expected[name] = expected.get(name, 0) + len(frame) - 4
        assert {group.tags["client-id"]: group.recorded_total for group in sluice.groups()} == expected


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_d19_a_replica_id_buys_nothing(version: int) -> None:
    """A Fetch with a follower's replica id is counted and throttled like any other Fetch."""
    async with ScriptedBroker(records=bytes(20_500)) as broker, open_gateway(broker, mode="mute", table=quotas(fetch=2_000)) as sluice:
        recorded = []
        for replica_id in (-1, 2):
            client = await sluice.client()
            name = f"replica{replica_id}".encode()
            answer = await client.ask(fetch_request(1, version=version, replica_id=replica_id, client_id=name))
            assert throttle_ms_of(FETCH, version, answer) > 0
            assert len(answer) == len(fetch_answer(version, 1, broker.records))
            recorded.append(max(group.recorded_total for group in sluice.groups() if group.tags["client-id"] == name.decode()))
        assert recorded[0] == recorded[1] > 20_000
