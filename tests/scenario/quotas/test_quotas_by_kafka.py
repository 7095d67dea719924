"""DescribeClientQuotas and AlterClientQuotas, which Sluice answers whether or not its brokers support them."""

import asyncio
import struct

import pytest

from protocol.messages.api_versions import read_api_keys
from protocol.messages.client_quotas import (
    AlterResult,
    FilterComponent,
    QuotaEntry,
    QuotaOp,
    alter_request,
    describe_request,
    read_alter_answer,
    read_describe_answer,
)
from proxy.observe.explain import explain
from proxy.observe.metrics.exposition import MetricsPage
from proxy.observe.metrics.series import label
from proxy.observe.page_source import OneProcess
from proxy.observe.snapshot import take_snapshot
from proxy.quota_admin.authorizer import Rules
from proxy.telemetry.loop_lag import LoopLag
from quota.names import kept_name
from tests.support.scripted.administered_gateway import Keeper
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import Hold, ScriptedBroker
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of, framed, metadata_request, produce_request
from tests.support.scripted.scripted_sockets import End, until

ALICE = (("user", "alice"),)
RATE = "producer_byte_rate"


def alter(correlation_id: int, value: float | None, *, validate_only: bool = False, version: int = 1) -> bytes:
    """Return a request that sets alice's rate, or removes it."""
    return alter_request(version, correlation_id, "admin", [(ALICE, [QuotaOp(RATE, value)])], validate_only=validate_only)


def describe(correlation_id: int, version: int = 1) -> bytes:
    """Return a request that describes all quotas."""
    return describe_request(version, correlation_id, "admin", [], strict=False)


@pytest.mark.parametrize("version", [0, 1])
async def test_set_described_and_removed(version: int) -> None:
    """A quota is set, described and removed on the bootstrap port and on each broker's port, without a request to a broker."""
    async with ScriptedBroker(node_id=1) as first, ScriptedBroker(node_id=2) as second:
        first.nodes = second.nodes = [first.node, second.node]
        async with open_gateway(first, second) as sluice:
            keeper = Keeper(sluice)
            for port in (sluice.port, sluice.broker_port(1), sluice.broker_port(2)):
                client = await sluice.client(port)
                judged = await client.ask(alter(1, 10_000.0, validate_only=True, version=version))
                assert read_alter_answer(version, judged) == [AlterResult(ALICE, 0, None)]
                assert keeper.quotas == {}
                assert read_alter_answer(version, await client.ask(alter(2, 10_000.0, version=version))) == [AlterResult(ALICE, 0, None)]
                described = read_describe_answer(version, await client.ask(describe(3, version)))
                assert described == (0, "", [QuotaEntry(ALICE, {RATE: 10_000.0})])
                assert read_alter_answer(version, await client.ask(alter(4, None, version=version))) == [AlterResult(ALICE, 0, None)]
                assert keeper.quotas == {}
            assert [request for broker in (first, second) for request in broker.requests] == []


async def test_api_versions_offer_them() -> None:
    """ApiVersions lists versions 0 and 1 of both APIs, whatever versions the broker has."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        broker.offered = {0: (0, 9), 3: (0, 9), 18: (0, 3), 49: (0, 9)}
        ours = await (await sluice.client()).ask(api_versions_request(version=3))
        assert [one for one in read_api_keys(3, ours) if one[0] in (48, 49)] == [(49, 0, 1), (48, 0, 1)]


async def test_no_client_may_change_quotas_by_default() -> None:
    """Without configured principals, altering and describing quotas get a broker's authorization errors, which name the remedy."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, Rules())
        client = await sluice.client()
        [result] = read_alter_answer(1, await client.ask(alter(1, 1.0)))
        assert (result.error_code, (result.error_message or "").endswith("--quota-admin User:ANONYMOUS")) == (31, True)
        code, message, entries = read_describe_answer(1, await client.ask(describe(2)))
        assert (code, (message or "").endswith("quota_admin.describe_principals"), entries) == (31, True, None)
        assert keeper.quotas == {}
        assert sluice.counters.administration.denials == {"kafka": 2}


async def test_each_entity_has_its_own_result() -> None:
    """An invalid entity gets Kafka's error and the others are changed; an invalid filter gets an error."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        client = await sluice.client()
        nobody, ip = (("user", ""),), (("ip", "127.0.0.9"),)
        entries = [(nobody, [QuotaOp(RATE, 1.0)]), (ip, [QuotaOp("connection_creation_rate", 5.0)]), (ALICE, [QuotaOp(RATE, -1.0)])]
        results = read_alter_answer(0, await client.ask(alter_request(0, 1, "admin", entries, validate_only=False)))
        assert sorted(results) == [
            AlterResult(ip, 0, None),
            AlterResult(nobody, 42, "Empty user not supported"),
            AlterResult(ALICE, 42, f"Quota {RATE} must be greater than 0"),
        ]
        assert keeper.quotas == {ip: {"connection_creation_rate": 5.0}}
        wrong = describe_request(0, 2, "admin", [FilterComponent("group", 2, None)], strict=False)
        assert read_describe_answer(0, await client.ask(wrong)) == (35, "Unsupported entity type group", None)


async def test_answers_keep_their_order() -> None:
    """A change waits for the responses before it, and the requests behind it wait for the change."""
    hold = Hold()
    async with ScriptedBroker(hold) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        client = await sluice.client()
        await client.send(produce_request(1, b"x") + alter(2, 5.0) + describe(3) + metadata_request(4))
        connection = await broker.connection()
        await connection.until_requests(1)
        assert keeper.quotas == {}
        hold.release()
        answers = await client.read_frames(4)
        assert [correlation_id_of(answer) for answer in answers] == [1, 2, 3, 4]
        assert read_describe_answer(1, answers[2]).entries == [QuotaEntry(ALICE, {RATE: 5.0})]
        assert [request.correlation_id for request in broker.requests] == [1, 4]


async def test_who_leaves_takes_nothing_back() -> None:
    """A change that has begun is completed although its client resets the connection."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        begun, go_on = asyncio.Event(), asyncio.Event()
        make = keeper.store.alter

        async def slowly(decide):  # type: ignore[no-untyped-def]
            begun.set()
            await go_on.wait()
            return await make(decide)

        keeper.store.alter = slowly  # type: ignore[method-assign]
        client = await sluice.client()
        await client.send(alter(1, 7.0))
        await begun.wait()
        client.reset()
        sluice.sweep()
        await sluice.until_closed("client_gone_while_paused")
        go_on.set()
        await until(lambda: keeper.quotas == {ALICE: {RATE: 7.0}})
        await keeper.administration.close()


async def test_a_drain_waits_for_a_change() -> None:
    """A drain closes a connection only after the response to its change."""
    async with ScriptedBroker() as broker, open_gateway(broker, serves=False) as sluice:
        keeper = Keeper(sluice)
        go_on = asyncio.Event()
        make = keeper.store.alter

        async def slowly(decide):  # type: ignore[no-untyped-def]
            await go_on.wait()
            return await make(decide)

        keeper.store.alter = slowly  # type: ignore[method-assign]
        client = await sluice.client()
        await client.send(alter(1, 7.0))
        await until(lambda: any(one.session.requests.pending.administered for one in sluice.gateway.connections))
        drain = asyncio.ensure_future(sluice.app.drain())
        await asyncio.sleep(0)
        assert len(sluice.gateway.connections) == 1
        go_on.set()
        assert read_alter_answer(1, await client.read_frame()) == [AlterResult(ALICE, 0, None)]
        assert await client.read_to_end() == b""
        await drain
        assert sluice.closes == {"drain": 1}
        assert keeper.quotas == {ALICE: {RATE: 7.0}}


async def test_what_does_not_read_ends_the_connection() -> None:
    """A malformed request closes the connection and does not reach the broker."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        Keeper(sluice)
        client = await sluice.client()
        await client.send(framed(struct.pack(">hhih", 49, 0, 1, -1) + b"\x7f\xff\xff\xff"))
        assert await client.read_to_end() == b""
        assert client.ended is End.FIN
        assert sluice.closes == {"bad_request": 1}
        assert broker.connections[0].received == b""


async def test_a_thousand_entities_in_a_request() -> None:
    """A request with 1,000 entities gets their results in order, and the requests behind it are answered after it."""
    entities = [(("user", f"user-{number:04}"),) for number in range(1_000)]
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        client = await sluice.client()
        entries = [(entity, [QuotaOp(RATE, 5.0)]) for entity in entities]
        await client.send(alter_request(1, 1, "admin", entries, validate_only=False) + describe(2) + metadata_request(3))
        altered, described, after = await client.read_frames(3)
        assert read_alter_answer(1, altered) == [AlterResult(entity, 0, None) for entity in entities]
        assert read_describe_answer(1, described).entries == [QuotaEntry(entity, {RATE: 5.0}) for entity in entities]
        assert correlation_id_of(after) == 3
        assert len(keeper.quotas) == 1_000


async def test_a_large_request_that_does_not_read_ends_the_connection() -> None:
    """A large malformed request closes the connection and changes no quota."""
    entries = [((("user", f"user-{number}"),), [QuotaOp(RATE, 5.0)]) for number in range(1_000)]
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        client = await sluice.client()
        frame = alter_request(0, 1, "admin", entries, validate_only=False)
        await client.send(frame[:-40] + b"\xff" * 40)
        assert await client.read_to_end() == b""
        assert client.ended is End.FIN
        assert sluice.closes == {"bad_request": 1}
        assert keeper.quotas == {}


async def test_a_quota_for_a_long_client_id_is_kept_described_and_enforced() -> None:
    """A quota for a 300-byte client-id applies to its full name; groups and pages show the shortened name."""
    name = "tenant-" + "x" * 293
    entity = (("client-id", name),)
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        Keeper(sluice)
        client = await sluice.client()
        entries = [(entity, [QuotaOp(RATE, 10_000.0)])]
        altered = await client.ask(alter_request(1, 1, "admin", entries, validate_only=False))
        assert read_alter_answer(1, altered) == [AlterResult(entity, 0, None)]
        assert read_describe_answer(1, await client.ask(describe(2))).entries == [QuotaEntry(entity, {RATE: 10_000.0})]
        wanted = [FilterComponent("client-id", 0, name)]
        asked = await client.ask(describe_request(1, 3, "admin", wanted, strict=True))
        assert read_describe_answer(1, asked).entries == [QuotaEntry(entity, {RATE: 10_000.0})]
        for number, client_id in enumerate((name, name[:-1] + "y"), 4):
            await client.ask(produce_request(number, client_id=client_id.encode()))
        views = {view.group.tags["client-id"]: view for view in take_snapshot(sluice.app.state).groups if view.quota_type == "Produce"}
        assert views[kept_name(name)].group.bound == 10_000.0
        assert views[kept_name(name)].rule == f"client-id={kept_name(name)}"
        assert not views[kept_name(name[:-1] + "y")].is_limited
        (info,) = [info for info in sluice.app.state.connections(0, 10) if name[:200] in info.client_id]
        assert kept_name(name) in info.client_id.split(",")
        page = MetricsPage(LoopLag()).render(take_snapshot(sluice.app.state)).decode()
        assert label(kept_name(name)) in page
        assert await explain_of(sluice, name) == 10_000.0


async def explain_of(sluice: RunningGateway, name: str) -> float:
    """Return the bound that /explain shows for a client-id."""
    page = await explain(OneProcess(sluice.app.state), sluice.app.administration.quotas, None, name, None)
    (produce,) = [quota for quota in page["quotas"] if quota["key"] == RATE]
    assert produce["value"] == 10_000.0
    return float(produce["groups"][0]["bound"])
