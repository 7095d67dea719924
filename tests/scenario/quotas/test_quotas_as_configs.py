"""KIP-422: quotas as configurations of users and clients, in one request with topics and brokers, which the broker answers."""

from typing import Any

import pytest

from protocol.api_keys import API_VERSIONS, ApiVersion
from protocol.limits import MAX_CONFIG_REQUEST_BYTES
from protocol.messages.config_resources import CLIENT, USER, answer_of, plain_result, read_config_request
from proxy.quota_admin.authorizer import Rules
from proxy.quota_admin.client_quota_api import RESOURCES_MAX
from tests.support.frames import layout_codec
from tests.support.frames.config_frames import a_request, answered_by, body_at, results_of
from tests.support.frames.message_strategies import frame_of
from tests.support.scripted.administered_gateway import Keeper
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_frames import Request

TOPIC, BROKER = 2, 4
DESCRIBE = [API_VERSIONS[32 << 16 | version] for version in range(5)]
ALTER = [API_VERSIONS[44 << 16 | version] for version in range(2)]
RATE, PERCENT = "producer_byte_rate", "request_percentage"


def alter(api: ApiVersion, *resources: tuple[int, str, dict[str, str | None]], validate_only: bool = False) -> bytes:
    """Return a request that sets values, or deletes those that are None."""
    named = [
        {
            "ResourceType": kind,
            "ResourceName": name,
            "Configs": [{"Name": key, "ConfigOperation": int(value is None), "Value": value} for key, value in values.items()],
        }
        for kind, name, values in resources
    ]
    return a_request(api, {"Resources": named, "ValidateOnly": validate_only})


def describe(api: ApiVersion, *resources: tuple[int, str], keys: list[str] | None = None) -> bytes:
    """Return a request that describes configurations."""
    named = [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys} for kind, name in resources]
    return a_request(api, {"Resources": named, "IncludeSynonyms": True, "IncludeDocumentation": True})


def codes(api: ApiVersion, frame: bytes) -> list[tuple[int, str, int]]:
    """Return the type, name and error code of each result."""
    return [(one["ResourceType"], one["ResourceName"], one["ErrorCode"]) for one in results_of(api, frame)[1]]


def values(api: ApiVersion, frame: bytes) -> dict[str, dict[str, str]]:
    """Return the values by resource name."""
    return {one["ResourceName"]: {config["Name"]: config["Value"] for config in one["Configs"]} for one in results_of(api, frame)[1]}


async def answers_for_topics(connection: BrokerConnection, asked: Request) -> None:
    """Act as a broker that knows only topics and brokers, and refuses a whole request that names other resources."""
    if asked.key not in (32, 44):
        await connection.answer(asked)
        return
    api = API_VERSIONS[asked.key << 16 | asked.version]
    found = read_config_request(api, asked.frame, body_at(asked.frame))
    spoiled = any(one.type in (USER, CLIENT) for one in found.resources)
    results = [plain_result(api, 42 if spoiled else 0, None, one) for one in found.resources[::-1]]
    if api.key == 32:  # API 32 returns the configurations too
        await connection.send(described(api, asked.correlation_id, found.resources[::-1], spoiled=spoiled))
        return
    await connection.send(answer_of(api, asked.correlation_id, results))


def described(api: ApiVersion, correlation_id: int, resources: Any, *, spoiled: bool) -> bytes:
    """Return a response with one configuration for each resource; its value is an address."""
    config: dict[str, Any] = {"ReadOnly": False, "ConfigSource": 5, "IsDefault": True, "IsSensitive": False, "Synonyms": []}
    config |= {"ConfigType": 2, "Documentation": None}
    body = {
        "ThrottleTimeMs": 3,
        "Results": [
            {
                "ErrorCode": 42 if spoiled else 0,
                "ErrorMessage": None,
                "ResourceType": one.type,
                "ResourceName": one.name,
                "Configs": [] if spoiled else [config | {"Name": "advertised.listeners", "Value": "PLAINTEXT://secret:9092"}],
            }
            for one in resources
        ],
    }
    return frame_of(api, layout_codec.encode(answered_by(api), body), correlation_id)


@pytest.mark.parametrize("api", ALTER, ids=lambda api: f"{api.name}-v{api.version}")
async def test_set_and_deleted(api: ApiVersion) -> None:
    """Quotas of users, clients, pairs and defaults, with percent-encoded names, are set and deleted without a request to the broker."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        client = await sluice.client()
        named = [
            (USER, "a%20b", {RATE: "1024", PERCENT: "12.5"}),
            (USER, "alice/clients/c%2F1", {RATE: "2048"}),
            (USER, "<default>/clients/", {RATE: "4"}),
            (USER, "", {RATE: "5"}),
            (CLIENT, "etl", {RATE: "6"}),
            (CLIENT, "<default>", {RATE: "7"}),
        ]
        judged = await client.ask(alter(api, *named, validate_only=True))
        assert {code for *_, code in codes(api, judged)} == {0}
        assert keeper.quotas == {}
        made = await client.ask(alter(api, *named))
        assert codes(api, made) == [(kind, name, 0) for kind, name, _ in named]
        assert keeper.quotas == {
            (("user", "a b"),): {RATE: 1024.0, PERCENT: 12.5},
            (("client-id", "c/1"), ("user", "alice")): {RATE: 2048.0},
            (("client-id", None), ("user", None)): {RATE: 4.0},
            (("user", None),): {RATE: 5.0},
            (("client-id", "etl"),): {RATE: 6.0},
            (("client-id", None),): {RATE: 7.0},
        }
        await client.ask(alter(api, (USER, "a%20b", {RATE: None}), (CLIENT, "etl", {RATE: None})))
        assert keeper.quotas[(("user", "a b"),)] == {PERCENT: 12.5}
        assert (("client-id", "etl"),) not in keeper.quotas
        assert broker.requests == []


@pytest.mark.parametrize("api", DESCRIBE, ids=lambda api: f"{api.name}-v{api.version}")
async def test_described_with_its_source(api: ApiVersion) -> None:
    """Quotas are described with whole numbers, with their config source, for the requested keys only, and without the broker."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        Keeper(sluice)
        client = await sluice.client()
        await client.ask(alter(ALTER[1], (USER, "alice", {RATE: "1024", PERCENT: "12.5"}), (CLIENT, "etl", {RATE: "6"})))
        answer = await client.ask(describe(api, (CLIENT, "etl"), (USER, "alice"), (USER, "nobody")))
        assert values(api, answer) == {"etl": {RATE: "6"}, "alice": {RATE: "1024", PERCENT: "12.5"}, "nobody": {}}
        if api.version:
            sources = [{config["ConfigSource"] for config in one["Configs"]} for one in results_of(api, answer)[1]]
            assert sources == [{122}, {121}, set()]
        some = await client.ask(describe(api, (USER, "alice"), keys=[PERCENT]))
        assert values(api, some) == {"alice": {PERCENT: "12.5"}}
        assert broker.requests == []


async def test_thousands_of_resources_in_one_request() -> None:
    """A request with thousands of resources is answered in full, and the broker gets one request for its resources."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        Keeper(sluice)
        client = await sluice.client()
        theirs = [(TOPIC, f"t{number}") for number in range(15_000)]
        ours = [(USER, f"u{number}") for number in range(RESOURCES_MAX)]
        answer = await client.ask(describe(DESCRIBE[4], *ours, *theirs))
        assert [name for _, name, _ in codes(DESCRIBE[4], answer)] == [name for _, name in (*ours, *theirs)]
        assert len(broker.requests) == 1


async def test_too_many_users_in_one_request() -> None:
    """A request with more than `RESOURCES_MAX` users and clients closes the connection."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        Keeper(sluice)
        client = await sluice.client()
        await client.send(describe(DESCRIBE[4], *[(USER, f"u{number}") for number in range(RESOURCES_MAX + 1)]))
        assert await client.read_to_end() == b""
        assert sluice.closes == {"bad_request": 1}
        assert broker.requests == []


@pytest.mark.parametrize("api", DESCRIBE + ALTER, ids=lambda api: f"{api.name}-v{api.version}")
async def test_mixed_requests_are_split_and_joined(api: ApiVersion) -> None:
    """The broker gets only its own resources, the results are in request order, and broker addresses are hidden."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        client = await sluice.client()
        named = [(TOPIC, "t1"), (USER, "alice"), (BROKER, "1"), (CLIENT, "etl"), (TOPIC, "t2")]
        if api.key == 32:
            answer = await client.ask(describe(api, *named))
            assert b"secret" not in answer.replace(b"t1", b"")[: answer.index(b"t1")]
            (hidden,) = [one for one in results_of(api, answer)[1] if one["ResourceType"] == BROKER]
            assert [config["Value"] for config in hidden["Configs"]] == [None]
        else:
            answer = await client.ask(alter(api, *((kind, name, {RATE: "9"}) for kind, name in named)))
            assert keeper.quotas == {(("user", "alice"),): {RATE: 9.0}, (("client-id", "etl"),): {RATE: 9.0}}
        assert codes(api, answer) == [(kind, name, 0) for kind, name in named]
        (seen,) = broker.requests
        found = read_config_request(api, seen.frame, body_at(seen.frame))
        assert [(one.type, one.name) for one in found.resources] == [(TOPIC, "t1"), (BROKER, "1"), (TOPIC, "t2")]


@pytest.mark.parametrize("api", DESCRIBE + ALTER, ids=lambda api: f"{api.name}-v{api.version}")
async def test_all_others_pass_byte_for_byte(api: ApiVersion) -> None:
    """Requests without users or clients, and those above `MAX_CONFIG_REQUEST_BYTES`, are forwarded unchanged."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        Keeper(sluice)
        client = await sluice.client()
        if api.key == 32:
            plain = describe(api, (TOPIC, "t1"), (TOPIC, "t2"))
            large = describe(api, (USER, "alice"), *((TOPIC, "t" * 200) for _ in range(MAX_CONFIG_REQUEST_BYTES // 200)))
            ours = describe(api, (USER, "alice"))
        else:
            plain = alter(api, (TOPIC, "t1", {"retention.ms": "1"}))
            large = alter(api, (USER, "alice", {}), *((TOPIC, "t" * 200, {}) for _ in range(MAX_CONFIG_REQUEST_BYTES // 200)))
            ours = alter(api, (USER, "alice", {RATE: "1"}))
        await client.send(plain + plain + ours + plain + large)
        answers = await client.read_frames(5)
        assert [codes(api, answer)[0][2] for answer in answers] == [0, 0, 0, 0, 42]
        assert b"".join(request.frame for request in broker.requests) == plain * 3 + large


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("a/b", RATE, "1", "it has to be <user> or <user>/clients/<client>"),
        ("a%2", RATE, "1", "malformed escape"),
        ("a", RATE, "lots", "it has to be a number"),
        ("a", RATE, "nan", "it has to be a number"),
        ("a", RATE, "-1", "must be greater than 0"),
        ("a", "retention.ms", "1", "Invalid configuration key retention.ms"),
    ],
)
async def test_what_cannot_be_set(name: str, key: str, value: str, message: str) -> None:
    """An invalid name, key or value gets error 42 and a message, and the other resources are changed."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice)
        answer = await (await sluice.client()).ask(alter(ALTER[1], (USER, name, {key: value}), (USER, "good", {RATE: "1"})))
        bad, good = results_of(ALTER[1], answer)[1]
        assert (bad["ErrorCode"], good["ErrorCode"]) == (42, 0)
        assert message in bad["ErrorMessage"]
        assert keeper.quotas == {(("user", "good"),): {RATE: 1.0}}


async def test_who_may_not_gets_an_error_for_each() -> None:
    """Without the right, users and clients get error 31, and the broker still answers for its resources."""
    async with ScriptedBroker(answers_for_topics) as broker, open_gateway(broker) as sluice:
        keeper = Keeper(sluice, Rules())
        client = await sluice.client()
        altered = await client.ask(alter(ALTER[0], (TOPIC, "t", {}), (USER, "alice", {RATE: "1"})))
        assert codes(ALTER[0], altered) == [(TOPIC, "t", 0), (USER, "alice", 31)]
        found = await client.ask(describe(DESCRIBE[4], (USER, "alice"), (TOPIC, "t")))
        assert codes(DESCRIBE[4], found) == [(USER, "alice", 31), (TOPIC, "t", 0)]
        assert keeper.quotas == {}
