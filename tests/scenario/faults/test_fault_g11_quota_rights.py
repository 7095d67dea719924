"""Row G11: only authorized principals can change quotas, by any API and any request."""

import random
from collections.abc import Callable

import pytest

from protocol.api_keys import API_VERSIONS
from protocol.messages.client_quotas import QuotaOp, alter_request, describe_request, read_alter_answer, read_describe_answer
from protocol.messages.config_resources import CLIENT, USER
from proxy.quota_admin.authorizer import Rules
from tests.support.frames.config_frames import a_request, results_of
from tests.support.scripted.administered_gateway import Keeper
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker

TRIES = 1_000
SEED = 11
DENIED = 31
RULES = [
    Rules(),
    Rules("list", frozenset({"User:admin", "User:anonymous", "User:ANONYMOUS2"}), describe_principals=frozenset({"User:ANONYMOUS"})),
    Rules("broker"),
]


def alterations(number: int, chance: random.Random) -> tuple[bytes, Callable[[bytes], set[int]]]:
    """Return a request that would change a quota, and a function that reads the error codes of its response."""
    kind, name = chance.choice(["user", "client-id", "ip"]), chance.choice(["alice", "ANONYMOUS", "10.0.0.1", None])
    if chance.random() < 0.5:
        version = chance.choice([0, 1])
        ops = [QuotaOp(chance.choice(["producer_byte_rate", "connection_creation_rate"]), chance.choice([1.0, 1e9, None, -1.0]))]
        entries = [([(kind, name)], ops)] * chance.choice([1, 1, 3])
        frame = alter_request(version, number, "client", entries, validate_only=False)
        return frame, lambda answer: {result.error_code for result in read_alter_answer(version, answer)}
    api = API_VERSIONS[44 << 16 | chance.choice([0, 1])]
    config = {"Name": "producer_byte_rate", "ConfigOperation": chance.choice([0, 1]), "Value": "1000"}
    resource = {"ResourceType": chance.choice([USER, CLIENT]), "ResourceName": name or "<default>", "Configs": [config]}
    frame = a_request(api, {"Resources": [resource], "ValidateOnly": False})
    return frame, lambda answer: {result["ErrorCode"] for result in results_of(api, answer)[1]}


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: rules.authority)
async def test_no_change_without_right_in_a_thousand_tries(rules: Rules) -> None:
    """A client without the right gets error 31 for each of a thousand requests, and no quota changes."""
    chance = random.Random(SEED)
    async with ScriptedBroker(node_id=1) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, rules)
        client = await sluice.client()
        for number in range(TRIES):
            frame, codes = alterations(number, chance)
            assert codes(await client.ask(frame)) == {DENIED}
        assert keeper.quotas == {}
        assert sluice.counters.administration.changes == {}
        assert sluice.counters.administration.denials == {"kafka": TRIES}
        may_describe = "User:ANONYMOUS" in rules.describe_principals
        described = read_describe_answer(1, await client.ask(describe_request(1, 1, "client", [], strict=False)))
        assert described.error_code == (0 if may_describe else DENIED)
        await sluice.app.administration.close()
        lines = await sluice.app.audit.history(limit=TRIES)
        assert {line["event"] for line in lines} == {"denied"}


async def test_a_reload_gives_and_takes_the_right() -> None:
    """A change of the authorization rules holds for the next request of an open connection."""
    async with ScriptedBroker(node_id=1) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, Rules())
        client = await sluice.client()
        ask = alter_request(1, 1, "client", [([("user", "alice")], [QuotaOp("producer_byte_rate", 5.0)])], validate_only=False)
        for rules, code in ((Rules(), DENIED), (Rules("list", frozenset({"User:ANONYMOUS"})), 0), (Rules(), DENIED)):
            keeper.administration.authorizer.rules = rules
            assert read_alter_answer(1, await client.ask(ask))[0].error_code == code


async def test_who_may_not_hears_nothing_else_about_configurations() -> None:
    """A client without the right gets error 31 for an invalid resource name; a client with the right gets error 42."""
    alter, describe = API_VERSIONS[44 << 16 | 1], API_VERSIONS[32 << 16 | 4]
    resource = {"ResourceType": USER, "ResourceName": "a/b/c", "Configs": [], "ConfigurationKeys": None}
    async with ScriptedBroker(node_id=1) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, Rules())
        client = await sluice.client()
        for rules, expected in ((Rules(), DENIED), (Rules("list", frozenset({"User:ANONYMOUS"})), 42)):
            keeper.administration.authorizer.rules = rules
            for api in (alter, describe):
                body = {"Resources": [resource], "ValidateOnly": False, "IncludeSynonyms": False, "IncludeDocumentation": False}
                results = results_of(api, await client.ask(a_request(api, body)))[1]
                assert [result["ErrorCode"] for result in results] == [expected]
