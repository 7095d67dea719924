"""`store = "forward"`: the brokers keep and enforce the quotas, and Sluice reads them and observes, or enforces them too."""

import pytest

from protocol.messages.api_versions import read_api_keys
from protocol.messages.client_quotas import (
    DescribeAnswer,
    Entity,
    QuotaEntry,
    QuotaOp,
    alter_request,
    describe_answer,
    describe_request,
    read_describe_answer,
)
from proxy.config.model import Quotas
from proxy.config.problem import ConfigProblems
from quota.entity import ClientQuotaEntity, ClientQuotaType
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    Request,
    api_versions_request,
    produce_answer,
    produce_request,
    throttle_ms_of,
)
from tests.support.scripted.scripted_sockets import HOST, until

RATE, CONNECT = "producer_byte_rate", "connection_creation_rate"
CLIENT: Entity = (("client-id", "scripted"),)
FORWARD = Quotas(store="forward")
OFFERED = {0: (0, 9), 1: (0, 12), 3: (0, 12), API_VERSIONS: (0, 3), 48: (0, 1), 49: (0, 1)}


class Broker(ScriptedBroker):
    """A broker that keeps quotas and reports `throttle_ms`."""

    def __init__(self, quotas: dict[Entity, dict[str, float]] | None = None, *, code: int = 0) -> None:
        super().__init__()
        self.offered = OFFERED
        self.quotas = quotas or {}
        self.code = code
        self.throttle_ms = 0

    def good_answer(self, request: Request) -> bytes:
        """Return the response, with those of APIs 48 and 49."""
        if request.key == 48:
            entries = None if self.code else [QuotaEntry(entity, values) for entity, values in self.quotas.items()]
            return describe_answer(request.version, request.correlation_id, DescribeAnswer(self.code, "", entries))
        if request.key == PRODUCE and self.throttle_ms:
            return produce_answer(request.version, request.correlation_id, throttle_ms=self.throttle_ms)
        return super().good_answer(request)


def bound(sluice: RunningGateway) -> float | None:
    """Return the Produce quota in force for the client."""
    table = sluice.app.quotas.in_force.table[ClientQuotaType.PRODUCE]
    return table.get(ClientQuotaEntity(None, "scripted"))


async def test_both_apis_pass() -> None:
    """Requests of APIs 48 and 49 are forwarded unchanged, and ApiVersions has the broker's versions of them."""
    async with Broker() as broker, open_gateway(broker, quotas=FORWARD, probed=False, clean=False) as sluice:
        client = await sluice.client()
        versions = read_api_keys(3, await client.ask(api_versions_request(version=3)))
        assert [one for one in versions if one[0] in (48, 49)] == [(48, 0, 1), (49, 0, 1)]
        asked = describe_request(1, 2, "admin", [], strict=False)
        assert read_describe_answer(1, await client.ask(asked)).error_code == 0
        altered = alter_request(1, 3, "admin", [(CLIENT, [QuotaOp(RATE, 1.0)])], validate_only=False)
        await client.send(altered)
        await until(lambda: len(broker.requests) == 3)
        assert [request.frame for request in broker.requests[1:]] == [asked, altered]
        client.close()


async def test_what_the_brokers_keep_is_learnt_and_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotas of the brokers are read at the start and after each change, and removed ones no longer apply."""
    monkeypatch.setattr("proxy.quota_store.forward.ASK_EVERY_S", 0.01)
    async with Broker({CLIENT: {RATE: 1_000.0}}) as broker, open_gateway(broker, quotas=FORWARD, probed=False, clean=False) as sluice:
        assert bound(sluice) == 1_000.0
        assert sluice.app.quotas.status.error is None
        broker.quotas = {CLIENT: {RATE: 2_000.0}}
        await until(lambda: bound(sluice) == 2_000.0)
        broker.quotas = {}
        await until(lambda: bound(sluice) is None)


async def test_brokers_that_do_not_say_take_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """While brokers refuse to describe quotas, the last quotas hold and the status has the error."""
    monkeypatch.setattr("proxy.quota_store.forward.ASK_EVERY_S", 0.01)
    async with Broker({CLIENT: {RATE: 1_000.0}}) as broker, open_gateway(broker, quotas=FORWARD, probed=False, clean=False) as sluice:
        broker.code = 31
        await until(lambda: "DESCRIBE_CONFIGS" in (sluice.app.quotas.status.error or ""))
        assert bound(sluice) == 1_000.0
        broker.code = 0
        await until(lambda: sluice.app.quotas.status.error is None)


async def test_a_start_without_brokers_begins_with_nothing() -> None:
    """When brokers refuse to describe quotas at the start, Sluice runs without quotas and its status has the error."""
    async with Broker(code=31) as broker, open_gateway(broker, quotas=FORWARD, probed=False, clean=False) as sluice:
        assert bound(sluice) is None
        assert "may not see quotas" in (sluice.app.quotas.status.error or "")


@pytest.mark.parametrize("name", [HOST, None])
async def test_a_limit_on_sluices_own_address_is_no_start(name: str | None) -> None:
    """A broker's connection rate for Sluice's own address prevents the start; a rate for another address does not."""
    async with Broker({(("ip", name),): {CONNECT: 5.0}}) as broker:
        with pytest.raises(ConfigProblems, match="connection_creation_rate = 5"):
            async with open_gateway(broker, quotas=FORWARD, probed=False, clean=False):
                pass
        broker.quotas = {(("ip", "10.9.9.9"),): {CONNECT: 5.0}}
        async with open_gateway(broker, quotas=FORWARD, probed=False, clean=False):
            pass


@pytest.mark.parametrize("shadow", [None, "enforce"])
async def test_the_brokers_throttle_and_ours(shadow: str | None) -> None:
    """The client gets the broker's throttle time, or with `shadow = "enforce"` the longer one, and both times are counted."""
    quotas = Quotas(store="forward", shadow=shadow)  # type: ignore[arg-type]
    async with (
        Broker({CLIENT: {RATE: 100.0}}) as broker,
        open_gateway(broker, quotas=quotas, probed=False, clean=False, delay_max_ms=0) as sluice,
    ):
        client = await sluice.client()
        broker.throttle_ms = 7
        answer = await client.ask(produce_request(1, b"x" * 5_000))
        counted = sluice.counters.shadow
        ours_ms = counted.sluice_ms["Produce"]
        assert ours_ms > 7
        assert counted.broker_ms == {"Produce": 7}
        assert counted.difference_ms == {"Produce": ours_ms - 7}
        assert counted.verdicts == {("Produce", "both"): 1}
        announced = throttle_ms_of(PRODUCE, read_version(broker), answer)
        assert announced == (7 if shadow is None else ours_ms)
        assert sluice.app.state.mode() == ("observe" if shadow is None else "delay")


def read_version(broker: Broker) -> int:
    """Return the version of the last Produce or Fetch that the broker received."""
    return next(request.version for request in broker.requests[::-1] if request.key in (PRODUCE, FETCH))
