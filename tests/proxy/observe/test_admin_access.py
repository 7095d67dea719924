"""The admin port as a way to change quotas: who may request what, over loopback sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.enforcement.groups.child_groups import enforced_group
from proxy.enforcement.switches import Switches
from proxy.observe.explain import SHARERS_MAX, explain
from proxy.observe.page_source import OneProcess
from proxy.observe.rows.client_groups import SLICE
from proxy.quota_store.store import EMPTY
from proxy.telemetry.status import ReadinessCheck
from quota.admin.messages import entity_key
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.declared_groups import Conditions, DeclaredGroup, DeclaredGroups, Member
from quota.groups.pattern import Pattern
from quota.manager import ClientQuotaManager
from sluice_cli.quotas.live import lines_of
from tests.support.processes.changing_port import READER, WRITER
from tests.support.processes.changing_port import ChangingPort as Port
from tests.support.quota_calls import record

ANOTHER = "another-0123456789"
ALTER = {"entries": [{"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 5_000}}]}
SWITCH = {"target": "all", "mode": "observe"}
OPEN = ["/metrics", "/healthz", "/readyz"]
SHOWN = ["/quotas", "/connections", "/admin/quotas", "/admin/switches", "/admin/history", "/admin/history/verify", "/explain?user=bob"]
PACE = {"target": "all", "pacing": "paced"}
CHANGES = [("/admin/quotas", ALTER), ("/admin/switches", SWITCH), ("/admin/pacing", PACE)]


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    async with Port(tmp_path) as port:
        yield port


async def statuses(port: Port, token: str | None) -> tuple[set[int], set[int], set[int]]:
    """Return the status codes of open pages, of protected pages, and of changes."""
    opened = {(await port.ask(path, token=token))[0] for path in OPEN}
    shown = {(await port.ask(path, token=token))[0] for path in SHOWN}
    return opened, shown, {(await port.ask(path, body, token))[0] for path, body in CHANGES}


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, ({200}, {403}, {403})),
        ("wrong-0123456789", ({200}, {403}, {403})),
        (READER + "x", ({200}, {403}, {403})),
        (READER[:-1], ({200}, {403}, {403})),
        ("", ({200}, {403}, {403})),
        ("\u00e4" * 20, ({200}, {403}, {403})),
        (READER, ({200}, {200}, {403})),
        (WRITER, ({200}, {200}, {200})),
    ],
)
async def test_where_there_are_tokens_they_say_who_may(port: Port, token: str | None, expected: object) -> None:
    """With tokens, metrics and health are open, other pages need a token, and changes need a writer's token."""
    assert await statuses(port, token) == expected
    assert bool(port.store.content.quotas) == (token == WRITER)


async def test_without_tokens_this_host_may_read_and_no_client_may_change(tmp_path: Path) -> None:
    """Without tokens the local machine may read the pages, and changes are refused."""
    async with Port(tmp_path, tokens=False) as port:
        assert await statuses(port, None) == ({200}, {200}, {403})
        assert await statuses(port, WRITER) == ({200}, {200}, {403})
        assert port.counts.denials == {"http": 6}


@pytest.mark.parametrize("tokens", [False, True])
async def test_from_another_machine_without_tls_only_metrics_and_health_are_there(tmp_path: Path, tokens: bool) -> None:
    """From another machine without TLS all but metrics and health is refused, even with a token."""
    async with Port(tmp_path, tokens=tokens, elsewhere=True) as port:
        for token in (None, READER, WRITER):
            assert await statuses(port, token) == ({200}, {403}, {403})
        assert (await port.ask("/nothing"))[0] == 403
        assert not port.store.content.quotas


async def test_from_another_machine_with_tls_a_token_counts(tmp_path: Path) -> None:
    """From another machine with TLS a token gives its right, and without one only metrics and health are open."""
    async with Port(tmp_path, tls=True, elsewhere=True) as port:
        assert await statuses(port, None) == ({200}, {403}, {403})
        assert await statuses(port, READER) == ({200}, {200}, {403})
        assert await statuses(port, WRITER) == ({200}, {200}, {200})


async def test_opened_pages_show_what_happens_and_not_what_is_kept(tmp_path: Path) -> None:
    """`open_quotas` opens /quotas and /connections only, and nothing where there are tokens."""
    async with Port(tmp_path, tokens=False, open_quotas=True, elsewhere=True) as port:
        assert [(await port.ask(path))[0] for path in SHOWN] == [200, 200, 403, 403, 403, 403, 403]
    async with Port(tmp_path, open_quotas=True, elsewhere=True) as port:
        assert await statuses(port, None) == ({200}, {403}, {403})


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize(
    ("elsewhere", "host", "open_names", "named"),
    [
        pytest.param(False, None, False, True, id="this-machine"),
        pytest.param(False, "localhost:9644", False, True, id="this-machine-by-name"),
        pytest.param(False, "evil.example.org", False, False, id="a-rebound-name"),
        pytest.param(True, None, False, False, id="another-machine"),
        pytest.param(True, "localhost", False, False, id="another-machine-says-localhost"),
        pytest.param(True, None, True, True, id="another-machine-and-all-may"),
        pytest.param(False, "sluice.monitoring.svc", True, True, id="any-name-and-all-may"),
    ],
)
async def test_metrics_name_clients_to_this_machine_alone(
    tmp_path: Path, *, tokens: bool, elsewhere: bool, host: str | None, open_names: bool, named: bool
) -> None:
    """Without a valid token /metrics names clients only on this machine, or to all if the operator allows it."""
    async with Port(tmp_path, tokens=tokens, elsewhere=elsewhere, open_names=open_names) as port:
        for token in (None, "wrong-0123456789"):
            status, text = await port.ask("/metrics", token=token, **({} if host is None else {"Host": host}))
            assert (status, "alice" in text, "kafka_quota_limit{" in text) == (200, named, named)
            assert "kafka_quota_bytes_total{" in text


@pytest.mark.parametrize(
    ("tls", "elsewhere", "token", "named"),
    [
        (True, True, READER, True),
        (True, True, WRITER, True),
        (True, True, READER + "x", False),
        (False, True, READER, False),
        (False, False, READER, True),
    ],
)
async def test_a_token_shows_names_where_it_counts(tmp_path: Path, *, tls: bool, elsewhere: bool, token: str, named: bool) -> None:
    """With a token /metrics names clients through TLS or on this machine."""
    async with Port(tmp_path, tls=tls, elsewhere=elsewhere) as port:
        status, text = await port.ask("/metrics", token=token, Host="sluice.monitoring.svc")
        assert (status, "alice" in text) == (200, named)


@pytest.mark.parametrize(("elsewhere", "host", "reported"), [(False, None, True), (True, None, False), (False, "evil.example.org", False)])
async def test_readiness_quotes_no_names_to_strangers(tmp_path: Path, *, elsewhere: bool, host: str | None, reported: bool) -> None:
    """/readyz shows details only on this machine, and elsewhere only which check fails."""
    async with Port(tmp_path, elsewhere=elsewhere, open_names=True) as port:
        port.state.checks = [ReadinessCheck("quota_source", False, "quotas.toml: quota[1].user: 'alice' has ...")]
        status, page = await port.ask("/readyz", **({} if host is None else {"Host": host}))
        assert (status, page["checks"][0]["name"], page["checks"][0]["ok"]) == (503, "quota_source", False)
        assert ("alice" in str(page)) == reported
        assert bool(page["logins"][0]["detail"]) == reported


async def test_the_two_kinds_of_metrics_are_never_mixed_up(tmp_path: Path) -> None:
    """The metrics with names and those without are cached separately."""
    async with Port(tmp_path, tokens=False) as port:
        for _ in range(3):
            assert "alice" in (await port.ask("/metrics"))[1]
            assert "alice" not in (await port.ask("/metrics", Host="evil.example.org"))[1]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://evil.example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_no_web_page_changes_anything(port: Port, headers: dict[str, str], status: int) -> None:
    """A change with a foreign Origin, a cross-site header or another content type is refused despite a valid token."""
    async with port.session.post(
        f"http://{port.address}/admin/quotas",
        data=json.dumps(ALTER),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {WRITER}", **headers},
    ) as response:
        assert response.status == status
    assert bool(port.store.content.quotas) == (status == 200)


@pytest.mark.parametrize("path", SHOWN)
async def test_a_rebound_name_sees_nothing(tmp_path: Path, path: str) -> None:
    """Without tokens a request with a foreign Host header is refused."""
    async with Port(tmp_path, tokens=False) as port:
        assert (await port.ask(path, Host="evil.example.org"))[0] == 403
        assert (await port.ask(path, Host="localhost:1"))[0] == 200


async def test_a_change_is_made_written_down_and_described(port: Port) -> None:
    """A change by HTTP is stored, described, and logged under the token's name."""
    status, page = await port.ask("/admin/quotas", ALTER, WRITER)
    assert (status, page) == (200, {"results": [{"entity": {"user": "bob"}, "error_code": 0, "error": None}]})
    assert port.store.content.quotas == {entity_key([("user", "bob")]): {"producer_byte_rate": 5_000.0}}
    described = {"quotas": [{"entity": {"user": "bob"}, "values": {"producer_byte_rate": 5_000.0}}]}
    assert await port.ask("/admin/quotas", token=READER) == (200, described)
    assert await port.ask("/admin/quotas?user=bob", token=READER) == (200, described)
    assert await port.ask("/admin/quotas?user=%3Cdefault%3E", token=READER) == (200, {"quotas": []})
    removal = {"entries": [{"entity": {"user": "bob"}, "ops": {"producer_byte_rate": None}}], "validate_only": True}
    assert (await port.ask("/admin/quotas", removal, WRITER))[0] == 200
    assert port.store.content.quotas
    assert (await port.ask("/admin/quotas", {**removal, "validate_only": False}, WRITER))[0] == 200
    assert not port.store.content.quotas
    _, history = await port.ask("/admin/history?limit=3", token=READER)
    assert [(line["event"], line["principal"], line.get("old"), line.get("new")) for line in history["lines"]] == [
        ("changed", "Token:ops", 5_000.0, None), ("asked", "Token:ops", None, None), ("changed", "Token:ops", None, 5_000.0),
    ]  # fmt: skip
    assert [line["seq"] for line in (await port.ask("/admin/history?after=1&before=3", token=READER))[1]["lines"]] == [2]
    _, verdict = await port.ask("/admin/history/verify", token=READER)
    assert (verdict["lines"], verdict["problems"]) == (4, [])


async def test_entries_are_judged_one_by_one(port: Port) -> None:
    """Each entry of a request has its own Kafka error code, and the response is 200."""
    entries = [{"entity": {"user": ""}, "ops": {}}, *ALTER["entries"], {"entity": {"user": "x"}, "ops": {"producer_byte_rate": -1}}]
    status, page = await port.ask("/admin/quotas", {"entries": entries}, WRITER)
    assert (status, [result["error_code"] for result in page["results"]]) == (200, [42, 0, 42])
    assert page["results"][2]["error"] == "Quota producer_byte_rate must be greater than 0"


async def test_switches_are_set_and_taken_away(port: Port) -> None:
    """Switches are set, listed and removed, and an invalid target gets error 42."""
    assert await port.ask("/admin/switches", SWITCH, WRITER) == (200, {"switches": {"all": "observe"}})
    assert await port.ask("/admin/switches", token=READER) == (200, {"switches": {"all": "observe"}})
    assert await port.ask("/admin/switches", {"target": "all", "mode": None}, WRITER) == (200, {"switches": {}})
    status, page = await port.ask("/admin/switches", {"target": "everything", "mode": "off"}, WRITER)
    assert (status, page["error_code"]) == (400, 42)
    assert "is nothing to switch; write all, listener:NAME" in page["error"]


@pytest.mark.parametrize(
    "body",
    [[], {}, {"entries": [{}]}, {"entries": [], "more": 1}, {"entries": [{"entity": {"user": 5}, "ops": {}}]},
     {"entries": [{"entity": {}, "ops": {"x": "1"}}]}, {"entries": [{"entity": {}, "ops": {"x": True}}]}],
)  # fmt: skip
async def test_what_is_no_request_is_refused(port: Port, body: object) -> None:
    """A body that is no valid request gets 400 and one line."""
    status, text = await port.ask("/admin/quotas", body, WRITER)
    assert (status, text.count("\n")) == (400, 1)
    assert text.startswith("invalid request: ")


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 50_000, '{"entries":[{"entity":{"user":"a"},"ops":{"x":NaN}}]}', '{"entries":[{"entity":{"user":"a"},"ops":{"x":1e999}}]}'],
)
async def test_what_is_no_json_is_refused(port: Port, text: str) -> None:
    """Invalid JSON and numbers that are not finite get 400."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {WRITER}"}
    async with port.session.post(f"http://{port.address}/admin/quotas", data=text, headers=headers) as response:
        assert response.status == 400


async def test_tokens_are_read_again(port: Port) -> None:
    """A changed token file replaces the token, and an unreadable one keeps the last token."""
    port.tokens[1].file.write_text(ANOTHER + "\n")
    port.held.read(port.tokens)
    assert (await port.ask("/admin/quotas", token=WRITER))[0] == 403
    assert (await port.ask("/admin/quotas", token=ANOTHER))[0] == 200
    port.tokens[1].file.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        port.held.read(port.tokens)
    assert (await port.ask("/admin/quotas", token=ANOTHER))[0] == 200


async def test_explain_shows_precedence_group_and_who_shares_it(port: Port) -> None:
    """/explain shows the winning level, the group's state, and the clients that share the group."""
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group)
    manager.update_quota(ClientQuotaEntity(None, "etl"), 1_000.0)
    now_ms = port.state.time_ms
    record(manager, KafkaPrincipal("User", "bob"), "etl", 50_000, now_ms)
    port.state.produce = manager  # type: ignore[assignment]
    port.state.connected = [
        (KafkaPrincipal("User", "bob"), "etl"),
        (KafkaPrincipal("User", "eve"), "etl"),
        (KafkaPrincipal("User", "eve"), "web"),
    ]
    body = {"entries": [{"entity": {"client-id": "etl"}, "ops": {"producer_byte_rate": 1_000}}]}
    await port.ask("/admin/quotas", body, WRITER)
    status, page = await port.ask("/explain?user=bob&client-id=etl", token=READER)
    assert status == 200
    produce = page["quotas"][0]
    assert (produce["key"], produce["value"]) == ("producer_byte_rate", 1_000.0)
    assert [level["entity"] for level in produce["precedence"] if level["wins"]] == [{"client-id": "etl"}]
    (group,) = produce["groups"]
    assert (group["broker"], group["rule"], group["bound"], group["observed"]) == ("1", "client-id=etl", 1_000.0, 5_000.0)
    assert (group["throttled_for_ms"], group["throttle_count"], group["last_verdict"]["throttle_ms"]) == (40_000, 1, 40_000)
    assert group["shared_by"] == {
        "connections": 2,
        "clients": 2,
        "named": [
            {"principal": "User:bob", "client_id": "etl", "connections": 1},
            {"principal": "User:eve", "client_id": "etl", "connections": 1},
        ],
    }
    assert page["quotas"][1]["groups"] == []
    groups = len(manager.groups())
    await port.ask("/explain?user=nobody&client-id=nothing", token=READER)
    assert len(manager.groups()) == groups


async def test_explain_looks_at_who_is_connected_in_slices(port: Port) -> None:
    """/explain yields to the event loop between slices of connections, and limits names and their number."""
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group)
    manager.update_quota(ClientQuotaEntity("bob", None), 1_000.0)
    bob = KafkaPrincipal("User", "bob")
    record(manager, bob, "etl", 50_000, port.state.time_ms)
    port.state.produce = manager  # type: ignore[assignment]
    port.state.connected = [(bob, f"{at:05}" + "x" * 30_000) for at in range(20 * SLICE)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    page = await explain(OneProcess(port.state), {}, "bob", "y" * 30_000, None)
    task.cancel()
    assert turns >= 19  # the task starts after the first slice
    (group,) = page["quotas"][0]["groups"]
    assert (group["shared_by"]["clients"], len(group["shared_by"]["named"])) == (20 * SLICE, SHARERS_MAX)
    assert len(json.dumps(page)) < 20_000


async def test_explain_shows_declared_groups_and_switches(port: Port) -> None:
    """/explain shows a client's declared groups, its switch, and whether it is exempt."""
    bounds, at_edge = {ClientQuotaType.PRODUCE: 5_000.0}, Conditions((Pattern("acme*"),), listeners=frozenset({"edge"}))
    groups = DeclaredGroups(
        [
            DeclaredGroup("saas", None, bounds),
            DeclaredGroup("acme", at_edge, {ClientQuotaType.PRODUCE: 1_000.0}, "saas"),
        ]
    )
    port.state.policy.configured(["User:ops"], groups)
    port.state.policy.switch(Switches({"entity:user=acme": "observe"}))
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group)
    manager.declare(groups)
    acme = Member(KafkaPrincipal("User", "acme"), "acme")
    record(manager, acme, "etl", 50_000, port.state.time_ms)
    port.state.produce = manager  # type: ignore[assignment]
    port.state.connected = [(acme, "etl"), (Member(KafkaPrincipal("User", "acme-2"), "acme"), "x"), (KafkaPrincipal("User", "bob"), "x")]
    _, page = await port.ask("/explain?user=acme&client-id=etl&listener=edge&address=192.0.2.7", token=READER)
    assert (page["switch"], page["exempt"], page["declared_group"]) == ("observe", False, "acme")
    produce = page["quotas"][0]
    assert produce["declared"] == [{"group": "acme", "bound": 1_000.0}, {"group": "saas", "bound": 5_000.0}]
    (group,) = produce["groups"]
    assert (group["rule"], group["observed"], group["shared_by"]["clients"]) == ("declared-group=acme", 5_000.0, 2)
    assert page["quotas"][1]["declared"] == []
    assert lines_of(page)["producer_byte_rate"][:2] == [
        "switched to observe",
        "counts for the declared group acme (1000), a part of saas (5000) instead",
    ]
    assert lines_of(page)["consumer_byte_rate"] == ["switched to observe"]
    _, page = await port.ask("/explain?user=ops&listener=inside", token=READER)
    assert (page["switch"], page["exempt"], page["declared_group"]) == (None, True, None)
    assert lines_of(page)["producer_byte_rate"][0] == "exempt: no quota applies"


async def test_explain_shows_an_address(port: Port) -> None:
    """/explain shows an address's two levels of precedence and its rate."""
    status, page = await port.ask("/explain?ip=192.0.2.7", token=READER)
    assert (status, page["quotas"][0]["rates"][0]["rate"]) == (200, 20.0)
    assert [level["entity"] for level in page["quotas"][0]["precedence"]] == [{"ip": "192.0.2.7"}, {"ip": None}]


@pytest.mark.parametrize("query", ["", "?ip=1.2.3.4&user=x", "?x=y"])
async def test_explain_wants_to_know_for_whom(port: Port, query: str) -> None:
    """/explain without a client or an address gets 400."""
    assert (await port.ask(f"/explain{query}", token=READER))[0] == 400


async def test_no_change_without_right_in_a_thousand_tries(tmp_path: Path) -> None:
    """Of a thousand changes without a writer's token, in many forms, none is made or logged as requested."""
    attempts: list[Callable[[Port], Any]] = []
    for headers in (
        {},
        {"Origin": "http://127.0.0.1"},
        {"Host": "localhost"},
        {"Content-Type": "text/plain"},
        {"X-Forwarded-For": "127.0.0.1"},
    ):
        for given in (
            None,
            READER,
            READER.upper(),
            WRITER.upper(),
            WRITER[:-1],
            WRITER + " x",
            f"{WRITER},{READER}",
            "*",
            "Token:ops",
            "Bearer",
        ):
            for path, body in CHANGES:
                attempts.append(lambda port, h=headers, g=given, p=path, b=body: port.ask(p, b, g, **h))  # type: ignore[misc]
    async with Port(tmp_path) as port:
        found = [await attempts[at % len(attempts)](port) for at in range(1_000)]
        assert {status for status, _ in found} <= {400, 403, 415}
        assert port.store.content == EMPTY
        assert not [line for line in await port.audit.history(limit=10_000) if line["event"] != "denied"]


@pytest.mark.parametrize(
    ("token", "elsewhere", "words"),
    [
        (None, False, "only with a token: Authorization: Bearer TOKEN"),
        (READER + "x", False, "the token is unknown here"),
        (READER, True, "a token is accepted inside TLS only"),
    ],
)
async def test_no_token_and_a_wrong_one(tmp_path: Path, *, token: str | None, elsewhere: bool, words: str) -> None:
    """The answer says whether a token is missing, unknown, or not accepted in the clear."""
    async with Port(tmp_path, elsewhere=elsewhere) as port:
        status, text = await port.ask("/connections", token=token)
        assert (status, words in str(text)) == (403, True)
