"""Kafka's own tests of APIs 48 and 49 and of quota changes, with their names and numbers, against Sluice."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from proxy.base.clock import now_ms
from proxy.quota_admin.authorizer import Rules
from quota.entity import UNLIMITED, KafkaPrincipal
from sluice.admin import (
    AsyncQuotaAdmin,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    QuotaAdminError,
)
from tests.support.scripted.administered_gateway import ANYBODY, Keeper
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_sockets import HOST

PRODUCE, CONSUME, PERCENT, CONNECT = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate"
Parts = dict[str, str | None]
NAMED, DEFAULTED = ClientQuotaFilterComponent.of_entity, ClientQuotaFilterComponent.of_default_entity
ANY = ClientQuotaFilterComponent.of_entity_type


class Cluster:
    """A running Sluice with an admin client."""

    def __init__(self, sluice: RunningGateway, keeper: Keeper, admin: AsyncQuotaAdmin) -> None:
        self.sluice = sluice
        self.keeper = keeper
        self.admin = admin

    async def alter(self, parts: Parts, ops: Mapping[str, float | None], *, validate_only: bool = False) -> None:
        """Alter one entity and check that it succeeds."""
        entity = ClientQuotaEntity.of(parts)
        result = await self.admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)], validate_only=validate_only)
        assert result == {entity: None}

    async def refuses(self, parts: Parts, ops: Mapping[str, float | None], code: int = 42) -> str:
        """Alter one entity, check that it is refused with `code`, and return the message."""
        entity = ClientQuotaEntity.of(parts)
        error = (await self.admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)]))[entity]
        assert error is not None
        assert error.code == code
        return error.message

    async def described(self, parts: Parts) -> dict[str, float]:
        """Return the quotas of one entity."""
        wanted = [DEFAULTED(kind) if name is None else NAMED(kind, name) for kind, name in parts.items()]
        found = await self.admin.describe_client_quotas(ClientQuotaFilter.contains_only(wanted))
        return found.get(ClientQuotaEntity.of(parts), {})

    def bounds(self, user: str, client_id: str) -> tuple[float, float]:
        """Return the bounds in force for a client's produced and fetched bytes."""
        (scope,) = self.sluice.app.scopes.all() or [self.sluice.app.scopes.of((HOST, 1))]
        principal = KafkaPrincipal("User", user)
        produce, fetch = (manager.group(principal, client_id, now_ms()) for manager in (scope.produce, scope.fetch))
        return UNLIMITED if produce is None else produce.bound, UNLIMITED if fetch is None else fetch.bound


@asynccontextmanager
async def cluster(rules: Rules = ANYBODY) -> AsyncIterator[Cluster]:
    """Run a cluster."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, rules)
        async with AsyncQuotaAdmin(f"{HOST}:{sluice.port}") as admin:
            yield Cluster(sluice, keeper, admin)


async def test_alter_client_quotas_request() -> None:
    """ClientQuotasRequestTest.testAlterClientQuotasRequest: quotas are added, changed and removed, also when absent."""
    entity: Parts = {"user": "user", "client-id": "client-id"}
    async with cluster() as kafka:
        assert await kafka.described(entity) == {}
        await kafka.alter(entity, {PRODUCE: 10_000.0, CONSUME: 20_000.0})
        assert await kafka.described(entity) == {PRODUCE: 10_000.0, CONSUME: 20_000.0}
        await kafka.alter(entity, {PRODUCE: 15_000.0})
        assert await kafka.described(entity) == {PRODUCE: 15_000.0, CONSUME: 20_000.0}
        await kafka.alter(entity, {PRODUCE: None})
        assert await kafka.described(entity) == {CONSUME: 20_000.0}
        await kafka.alter(entity, {PRODUCE: None})
        await kafka.alter(entity, {PRODUCE: 8_000.0, CONSUME: None, PERCENT: 12.3})
        assert await kafka.described(entity) == {PRODUCE: 8_000.0, PERCENT: 12.3}
        await kafka.alter(entity, {PRODUCE: None, PERCENT: None})
        assert await kafka.described(entity) == {}


async def test_alter_client_quotas_request_validate_only() -> None:
    """ClientQuotasRequestTest.testAlterClientQuotasRequestValidateOnly: a validate-only request changes nothing."""
    entity: Parts = {"user": "user"}
    async with cluster() as kafka:
        await kafka.alter(entity, {PRODUCE: 20_000.0, PERCENT: 23.45})
        before = kafka.keeper.quotas
        for ops in ({PRODUCE: 10_000.0}, {PRODUCE: None}, {PRODUCE: 10_000.0, CONSUME: 20_000.0}, {PERCENT: None}):
            await kafka.alter(entity, ops, validate_only=True)
            assert kafka.keeper.quotas == before


async def test_client_quotas_for_scram_users() -> None:
    """ClientQuotasRequestTest.testClientQuotasForScramUsers: SCRAM credentials are not accepted as quota keys."""
    async with cluster() as kafka:
        assert await kafka.refuses({"user": "user"}, {"SCRAM-SHA-256": 1.0}) == "Invalid configuration key SCRAM-SHA-256"
        assert await kafka.described({"user": "user"}) == {}


async def test_client_quotas_sanitized() -> None:
    """ClientQuotasRequestTest.testClientQuotasSanitized: a user name with spaces is kept unchanged."""
    async with cluster() as kafka:
        await kafka.alter({"user": "user with spaces"}, {PRODUCE: 20_000.0})
        assert await kafka.described({"user": "user with spaces"}) == {PRODUCE: 20_000.0}


async def test_client_quotas_with_default_name() -> None:
    """ClientQuotasRequestTest.testClientQuotasWithDefaultName: the client-id `<default>` is not the default client-id."""
    async with cluster() as kafka:
        await kafka.alter({"client-id": "<default>"}, {PRODUCE: 20_000.0})
        assert await kafka.described({"client-id": None}) == {}
        await kafka.alter({"client-id": None}, {PRODUCE: 10_000.0})
        assert await kafka.described({"client-id": "<default>"}) == {PRODUCE: 20_000.0}
        assert (kafka.bounds("u", "<default>")[0], kafka.bounds("u", "other")[0]) == (20_000.0, 10_000.0)


async def test_alter_ip_quotas_request() -> None:
    """ClientQuotasRequestTest.testAlterIpQuotasRequest: rates of an address and of the default are altered, described and enforced."""
    known, other = {"ip": "1.2.3.4"}, {"ip": None}
    async with cluster() as kafka:
        in_force = kafka.keeper.store
        await kafka.alter(known, {CONNECT: 100.0})
        assert await kafka.described(known) == {CONNECT: 100.0}
        assert in_force.in_force.connection_rates == {"1.2.3.4": 100}
        await kafka.alter(known, {CONNECT: 150.0})
        await kafka.alter(other, {CONNECT: 200.0})
        assert sorted(in_force.in_force.connection_rates.values()) == [150, 200]
        found = await kafka.admin.describe_client_quotas(ClientQuotaFilter.contains([ANY("ip")]))
        assert sorted(values[CONNECT] for values in found.values()) == [150.0, 200.0]
        await kafka.alter(known, {CONNECT: None})
        await kafka.alter(other, {CONNECT: None})
        assert (kafka.keeper.quotas, in_force.in_force.connection_rates) == ({}, {})


@pytest.mark.parametrize(
    ("parts", "ops"),
    [
        ({"": "name"}, {PRODUCE: 12.0}),
        ({"invalid": "name"}, {PRODUCE: 12.0}),
        ({}, {PRODUCE: 12.0}),
        ({"user": "user"}, {"bad": 34.0}),
        ({"user": "user"}, {PRODUCE: 10_000.5}),
        ({"user": "", "client-id": "x"}, {PRODUCE: 1.0}),
    ],
)
async def test_alter_client_quotas_invalid_requests(parts: Parts, ops: dict[str, float | None]) -> None:
    """ClientQuotasRequestTest.testAlterClientQuotasInvalidRequests: an invalid request gets error 42 and changes nothing."""
    async with cluster() as kafka:
        await kafka.refuses(parts, ops)
        assert kafka.keeper.quotas == {}


async def test_alter_client_quotas_invalid_entity_combination() -> None:
    """ClientQuotasRequestTest.testAlterClientQuotasInvalidEntityCombination: an ip cannot be combined with a user or client-id."""
    async with cluster() as kafka:
        for parts in ({"user": "user", "ip": "1.2.3.4"}, {"client-id": "client", "ip": "1.2.3.4"}):
            assert "combination" in await kafka.refuses(dict(parts), {CONNECT: 1.0})


async def test_alter_client_quotas_bad_ip() -> None:
    """ClientQuotasRequestTest.testAlterClientQuotasBadIp: an invalid ip and an ip with a user's key are refused."""
    async with cluster() as kafka:
        for host in ("ip%20", "not an address", "1.2.3.4.5"):
            assert "is not a valid IP" in await kafka.refuses({"ip": host}, {CONNECT: 1.0})
        assert "Invalid configuration key" in await kafka.refuses({"ip": "1.2.3.4"}, {PRODUCE: 1.0})


async def test_describe_client_quotas_invalid_filter_combination() -> None:
    """ClientQuotasRequestTest.testDescribeClientQuotasInvalidFilterCombination: such a filter gets error 42."""
    async with cluster() as kafka:
        for kind in ("user", "client-id"):
            with pytest.raises(QuotaAdminError) as error:
                await kafka.admin.describe_client_quotas(ClientQuotaFilter.contains([ANY("ip"), ANY(kind)]))
            assert error.value.code == 42


async def test_client_quotas_unsupported_entity_types() -> None:
    """ClientQuotasRequestTest.testClientQuotasUnsupportedEntityTypes: another entity type gets error 35."""
    async with cluster() as kafka:
        with pytest.raises(QuotaAdminError) as error:
            await kafka.admin.describe_client_quotas(ClientQuotaFilter.contains([NAMED("other", "name")]))
        assert error.value.code == 35


MATCHED: list[tuple[Parts, str, float]] = [
    ({"user": "user-1", "client-id": "client-id-1"}, PERCENT, 50.50),
    ({"user": "user-2", "client-id": "client-id-1"}, PERCENT, 51.51),
    ({"user": "user-3", "client-id": "client-id-2"}, PERCENT, 52.52),
    ({"user": None, "client-id": "client-id-1"}, PERCENT, 53.53),
    ({"user": "user-1", "client-id": None}, PERCENT, 54.54),
    ({"user": "user-3", "client-id": None}, PERCENT, 55.55),
    ({"user": "user-1"}, PERCENT, 56.56),
    ({"user": "user-2"}, PERCENT, 57.57),
    ({"user": "user-3"}, PERCENT, 58.58),
    ({"user": None}, PERCENT, 59.59),
    ({"client-id": "client-id-2"}, PERCENT, 60.60),
    ({"ip": "1.2.3.4"}, CONNECT, 60.0),
    ({"ip": None}, CONNECT, 70.0),
]
"""Eleven entities of users and client-ids, and two of ips."""


async def test_describe_client_quotas_match_exact() -> None:
    """ClientQuotasRequestTest.testDescribeClientQuotasMatchExact: a strict filter by name finds that entity alone."""
    async with cluster() as kafka:
        for parts, key, value in MATCHED:
            await kafka.alter(parts, {key: value})
        for parts, key, value in MATCHED:
            assert await kafka.described(parts) == {key: value}
        for absent in ({"user": "user-1", "client-id": "client-id-2"}, {"user": "user-4"}, {"client-id": "client-id-1"}, {"ip": "1.2.3.5"}):
            assert await kafka.described(dict(absent)) == {}


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ([NAMED("user", "user-1")], False, 3),
        ([NAMED("client-id", "client-id-2")], False, 2),
        ([DEFAULTED("user")], False, 2),
        ([NAMED("user", "user-2")], True, 1),
        ([ANY("user")], True, 4),
        ([ANY("user")], False, 10),
        ([ANY("client-id")], True, 1),
        ([ANY("client-id")], False, 7),
        ([ANY("ip")], True, 2),
        ([], False, 13),
        ([], True, 0),
    ],
)
async def test_describe_client_quotas_match_partial(components: list[ClientQuotaFilterComponent], strict: bool, count: int) -> None:
    """ClientQuotasRequestTest.testDescribeClientQuotasMatchPartial: each filter finds the number of entities that Kafka finds."""
    async with cluster() as kafka:
        for parts, key, value in MATCHED:
            await kafka.alter(parts, {key: value})
        found = await kafka.admin.describe_client_quotas(ClientQuotaFilter(components, strict))
        assert len(found) == count


@pytest.mark.parametrize(
    "parts",
    [
        {"client-id": "testClient"},
        {"user": "ANONYMOUS"},
        {"user": "ANONYMOUS", "client-id": "testClient"},
        {"user": None},
        {"client-id": None},
        {"user": None, "client-id": None},
    ],
    ids=str,
)
async def test_dynamic_config_change_quota(parts: Parts) -> None:
    """DynamicConfigChangeTest.testClientIdQuotaChange and its five siblings: a quota applies when it is set, and none after its removal."""
    async with cluster(Rules("list", super_principals=frozenset({"User:ANONYMOUS"}))) as kafka:
        await kafka.alter(parts, {PRODUCE: 1_000.0, CONSUME: 2_000.0})
        assert kafka.bounds("ANONYMOUS", "testClient") == (1_000.0, 2_000.0)
        await kafka.alter(parts, {PRODUCE: None, CONSUME: None})
        assert kafka.bounds("ANONYMOUS", "testClient") == (UNLIMITED, UNLIMITED)


async def test_dynamic_config_change_ip_handler_unresolvable_address() -> None:
    """DynamicConfigChangeTest.testIpHandlerUnresolvableAddress and testIpQuotaInitialization: rates apply, a host name is refused."""
    async with cluster() as kafka:
        await kafka.alter({"ip": "1.2.3.4"}, {CONNECT: 10.0})
        await kafka.alter({"ip": None}, {CONNECT: 20.0})
        assert sorted(kafka.keeper.store.in_force.connection_rates.values()) == [10, 20]
        assert "is not a valid IP" in await kafka.refuses({"ip": "illegal-hostname"}, {CONNECT: 10.0})


async def test_kraft_cluster_client_quotas() -> None:
    """KRaftClusterTest.testClientQuotas and testDefaultClientQuotas: quotas of a user override the default user's."""
    async with cluster() as kafka:
        await kafka.alter({"user": "testkit"}, {PERCENT: 0.99})
        await kafka.alter({"user": "testkit"}, {PERCENT: 0.97, PRODUCE: 10_000.0, CONSUME: 10_001.0})
        await kafka.alter({"user": "testkit"}, {PERCENT: 0.98}, validate_only=True)
        assert await kafka.described({"user": "testkit"}) == {PERCENT: 0.97, PRODUCE: 10_000.0, CONSUME: 10_001.0}
        await kafka.alter({"user": None}, {CONSUME: 100.0})
        await kafka.alter({"user": "bob"}, {CONSUME: 1_000.0})
        found = await kafka.admin.describe_client_quotas(ClientQuotaFilter.contains([DEFAULTED("user")]))
        assert found == {ClientQuotaEntity.of({"user": None}): {CONSUME: 100.0}}
        assert (kafka.bounds("bob", "c")[1], kafka.bounds("alice", "c")[1]) == (1_000.0, 100.0)


async def test_controller_apis_unauthorized_alter_client_quotas() -> None:
    """ControllerApisTest.testUnauthorizedHandleAlterClientQuotas and KafkaApisTest: each entity gets error 31, valid or not."""
    async with cluster(Rules()) as kafka:
        entities = [ClientQuotaEntity.of(parts) for parts in ({"user": "a"}, {"user": ""}, {"group": "g"})]
        results = await kafka.admin.alter_client_quotas([ClientQuotaAlteration(entity, {PRODUCE: 1.0}) for entity in entities])
        denial = "Sluice does not let User:ANONYMOUS change quotas: name it in quota_admin.principals, or start Sluice with --quota-admin"
        assert [(error.code, error.message) for error in results.values() if error] == [(31, f"{denial} User:ANONYMOUS")] * 3
        with pytest.raises(QuotaAdminError) as error:
            await kafka.admin.describe_client_quotas()
        assert error.value.code == 31
