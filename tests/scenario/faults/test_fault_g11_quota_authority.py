"""Row G11: where the broker decides who may change quotas, no quota changes without an unambiguous yes of the broker."""

import random
import struct
from collections.abc import Awaitable, Callable

import pytest

from protocol.messages.client_quotas import (
    AlterResult,
    DescribeAnswer,
    Entity,
    QuotaOp,
    alter_answer,
    alter_request,
    describe_answer,
    describe_request,
    read_alter_answer,
    read_alter_request,
    read_describe_answer,
)
from protocol.request_head import read_request_head
from proxy.session.administered import CORRELATION_ID
from tests.support.frames import sasl_frames
from tests.support.scripted.administered_gateway import BROKER, Keeper
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ClosedByPeerError, ScriptedClient
from tests.support.scripted.scripted_frames import API_VERSIONS, NO_OPERATIONS, Request, api_versions_request, framed
from tests.support.scripted.scripted_frames import answer as whole_answer
from tests.support.tls import sasl_tokens

RATE = "producer_byte_rate"
TRIES = 500  # on each of two event loops
SILENCE_S = 0.02
"""How long Sluice waits for a broker that never answers; for each other fault it waits for the answer, however late it comes."""
OPERATIONS = {"alter": 1 << 11, "describe": 1 << 10, "none": 0}
DENIED = "Cluster authorization failed."

Fault = Callable[[BrokerConnection, Request, list[Entity]], Awaitable[None]]


def entities_of(asked: Request) -> list[Entity]:
    """Return the entities of a probe, after checking that the probe is validate-only."""
    head = read_request_head(asked.frame, 0, len(asked.frame) - 4)
    assert head is not None
    read = read_alter_request(asked.version, asked.frame, head.body_at)
    assert read.validate_only
    assert asked.correlation_id == CORRELATION_ID
    return [entity for entity, _ in read.entries]


def results(asked: Request, entities: list[Entity], code: int = 0) -> bytes:
    """Return an AlterClientQuotas response with one result for each entity."""
    return alter_answer(asked.version, asked.correlation_id, [AlterResult(entity, code, None) for entity in entities])


async def allows(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(results(asked, entities))


async def denies(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(results(asked, entities, 31))


async def denies_one(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    mixed = [AlterResult(entity, 31 if at == 0 else 0, None) for at, entity in enumerate(entities)]
    await connection.send(alter_answer(asked.version, asked.correlation_id, mixed))


async def is_silent(_connection: BrokerConnection, _asked: Request, _entities: list[Entity]) -> None:
    pass


async def leaves(connection: BrokerConnection, _asked: Request, _entities: list[Entity]) -> None:
    await connection.close()


async def resets(connection: BrokerConnection, _asked: Request, _entities: list[Entity]) -> None:
    await connection.reset()


async def answers_random_bytes(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    body = bytes(random.Random(len(entities)).randbytes(40))
    await connection.send(framed(struct.pack(">i", asked.correlation_id) + body))


async def says_too_little(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(results(asked, entities[:-1]))


async def says_too_much(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(results(asked, [*entities, (("user", "other"),)]))


async def answers_for_others(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(results(asked, [(("user", "other"),), *entities[1:]]))


async def repeats(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(results(asked, [*entities[:-1], entities[0]]) if len(entities) > 1 else results(asked, []))


async def answers_another(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(alter_answer(asked.version, asked.correlation_id + 1, [AlterResult(one, 0, None) for one in entities]))


async def refuses_the_change(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
    await connection.send(results(asked, entities, 42))


NO = (
    denies,
    denies_one,
    is_silent,
    leaves,
    resets,
    answers_random_bytes,
    says_too_little,
    says_too_much,
    answers_for_others,
    repeats,
    answers_another,
    refuses_the_change,
)


class Broker(ScriptedBroker):
    """A broker that accepts every login and answers quota requests as `fault` says."""

    def __init__(self) -> None:
        super().__init__(self.act)
        self.fault: Fault = allows
        self.probes_met = 0

    async def act(self, connection: BrokerConnection, asked: Request) -> None:
        if asked.key == 17:
            await connection.send(sasl_frames.handshake_answer(asked.correlation_id))
        elif asked.key == 36:
            await connection.send(sasl_frames.authenticate_answer(asked.correlation_id))
        elif asked.key == 49:
            self.probes_met += 1
            await self.fault(connection, asked, entities_of(asked))
        else:
            await connection.answer(asked)


async def logged_in(sluice: RunningGateway) -> ScriptedClient:
    """Return a client that the broker has authenticated."""
    client = await sluice.client()
    await client.ask(sasl_frames.handshake("PLAIN"))
    await client.ask(sasl_frames.authenticate(sasl_tokens.plain("mallory", "secret")))
    return client


def change(correlation_id: int, users: list[str], version: int = 1) -> bytes:
    """Return a request that sets a rate for each user."""
    entries = [((("user", user),), [QuotaOp(RATE, 1_000_000.0)]) for user in users]
    return alter_request(version, correlation_id, "app", entries, validate_only=False)


async def test_g11_no_change_without_a_clear_yes() -> None:
    """Whether the broker denies, stays silent, closes, or answers with missing, extra, wrong or malformed results, no quota changes."""
    dice = random.Random(11)
    async with Broker() as broker, open_gateway(broker, serves=False) as sluice:
        keeper = Keeper(sluice, BROKER)
        answer_s = keeper.authority.wait_s
        client = await logged_in(sluice)
        for number in range(TRIES):
            broker.fault = NO[number % len(NO)]
            keeper.authority.wait_s = SILENCE_S if broker.fault is is_silent else answer_s
            users = [f"user-{number}-{at}" for at in range(dice.randint(1, 4))]
            try:
                found = read_alter_answer(1, await client.ask(change(number, users)))
            except (ClosedByPeerError, ConnectionError):
                client = await logged_in(sluice)
            else:
                assert [one.error_code for one in found] == [42 if broker.fault is refuses_the_change else 31] * len(users)
                assert {one.entity for one in found} == {(("user", user),) for user in users}
            assert keeper.quotas == {}, broker.fault
            if broker.fault is is_silent:  # the next request would wait for the response that never comes
                client.close()
                client = await logged_in(sluice)
        assert broker.probes_met == TRIES
        broker.fault = allows
        assert read_alter_answer(1, await client.ask(change(1, ["alice"]))) == [AlterResult((("user", "alice"),), 0, None)]
        assert keeper.quotas == {(("user", "alice"),): {RATE: 1_000_000.0}}


async def test_only_what_the_broker_lets_pass_is_changed() -> None:
    """Only the entities that the broker permits are changed; a refused one has the broker's error code and message."""

    async def picks(connection: BrokerConnection, asked: Request, entities: list[Entity]) -> None:
        mixed = [AlterResult(one, 42 if one == (("user", "b"),) else 0, "not b" if one == (("user", "b"),) else None) for one in entities]
        await connection.send(alter_answer(asked.version, asked.correlation_id, mixed[::-1]))

    async with Broker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, BROKER)
        broker.fault = picks
        found = read_alter_answer(0, await (await logged_in(sluice)).ask(change(1, ["a", "b", "c"], 0)))
        assert sorted(found) == [
            AlterResult((("user", "a"),), 0, None),
            AlterResult((("user", "b"),), 42, "not b"),
            AlterResult((("user", "c"),), 0, None),
        ]
        assert sorted(keeper.quotas) == [(("user", "a"),), (("user", "c"),)]


async def test_who_did_not_log_in_is_not_asked_about() -> None:
    """A client that has not logged in is refused without a probe, because the broker would judge Sluice's own principal."""
    async with Broker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, BROKER)
        client = await sluice.client()
        assert read_alter_answer(1, await client.ask(change(1, ["alice"]))) == [AlterResult((("user", "alice"),), 31, DENIED)]
        assert read_alter_answer(1, await client.ask(change(2, []))) == []
        assert read_describe_answer(1, await client.ask(describe_request(1, 3, "app", [], strict=False))) == (31, None, None)
        assert (keeper.quotas, broker.probes_met) == ({}, 0)


async def test_a_broker_without_a_lock_is_trusted_no_more() -> None:
    """When the broker has allowed a change by an account without rights, Sluice denies every change without asking it."""
    async with Broker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, BROKER)
        keeper.authority.is_trusted = False
        found = read_alter_answer(1, await (await logged_in(sluice)).ask(change(1, ["alice"])))
        assert found == [AlterResult((("user", "alice"),), 31, DENIED)]
        assert (keeper.quotas, broker.probes_met) == ({}, 0)


async def test_an_entity_twice_is_refused() -> None:
    """An entity that occurs twice in a request has error 42 and is not changed, whatever the broker answers."""
    async with Broker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, BROKER)
        found = read_alter_answer(1, await (await logged_in(sluice)).ask(change(1, ["a", "b", "a"])))
        assert sorted(one[:2] for one in found) == [((("user", "a"),), 42), ((("user", "b"),), 0)]
        assert list(keeper.quotas) == [(("user", "b"),)]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("code", "message"), [(31, None), (42, "no such match type"), (0, "")])
async def test_a_description_needs_the_brokers_yes(version: int, code: int, message: str | None) -> None:
    """A describe request gets the broker's error; where the broker permits it, it gets the quotas that Sluice keeps."""
    theirs = [] if code else [((("user", "theirs"),), {RATE: 1.0})]

    async def describes(connection: BrokerConnection, asked: Request) -> None:
        if asked.key != 48:
            await broker.act(connection, asked)
            return
        entries = None if code else theirs
        await connection.send(describe_answer(version, asked.correlation_id, DescribeAnswer(code, message, entries)))  # type: ignore[arg-type]

    async with Broker() as broker, open_gateway(broker, serves=False) as sluice:
        Keeper(sluice, BROKER)
        broker.script = describes
        client = await logged_in(sluice)
        await client.ask(change(1, ["ours"]))
        found = read_describe_answer(version, await client.ask(describe_request(version, 2, "app", [], strict=False)))
        ours = None if code else [((("user", "ours"),), {RATE: 1_000_000.0})]
        assert found == (code, message, ours)


@pytest.mark.parametrize("may", ["alter", "describe", "none", "not reported"])
@pytest.mark.parametrize("newer", [True, False], ids=["DescribeCluster", "Metadata"])
async def test_brokers_before_client_quotas_are_asked_for_operations(may: str, newer: bool) -> None:
    """Where a broker lacks the quota APIs, its authorized operations decide, and a missing field denies."""
    operations = NO_OPERATIONS if may == "not reported" else struct.pack(">i", OPERATIONS[may])

    async def tells(connection: BrokerConnection, asked: Request) -> None:
        if asked.key == 60:
            body = struct.pack(">iBihB", asked.correlation_id, 0, 0, 0, 0) + b"\x02c" + struct.pack(">i", 1) + b"\x01" + operations
            await connection.send(framed(body + b"\x00"))
        elif asked.key == 3 and asked.version == 8:
            body = struct.pack(">iihii", 0, 0, -1, 1, 0) + operations
            await connection.send(whole_answer(3, 8, asked.correlation_id, body))
        else:
            await broker.act(connection, asked)

    async with Broker() as broker, open_gateway(broker, serves=False) as sluice:
        broker.offered = {0: (0, 9), 3: (0, 9), 17: (0, 1), API_VERSIONS: (0, 3), 36: (0, 2)} | ({60: (0, 0)} if newer else {})
        keeper = Keeper(sluice, BROKER)
        broker.script = tells
        client = await sluice.client()
        await client.ask(api_versions_request())
        await client.ask(sasl_frames.handshake("PLAIN"))
        await client.ask(sasl_frames.authenticate(sasl_tokens.plain("alice", "secret")))
        (found,) = read_alter_answer(1, await client.ask(change(1, ["bob"])))
        assert found.error_code == (0 if may == "alter" else 31)
        described = read_describe_answer(1, await client.ask(describe_request(1, 2, "app", [], strict=False)))
        assert described.error_code == (0 if may == "describe" else 31)
        assert bool(keeper.quotas) == (may == "alter")
        assert broker.probes_met == 0
