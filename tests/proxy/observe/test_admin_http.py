"""The admin port's pages, over loopback sockets."""

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from proxy.base.errors import StartError
from proxy.base.host_port import HostPort
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.switches import Switches, SwitchMode
from proxy.observe.admin_access import is_loopback
from proxy.observe.admin_http import CONNECTIONS_SHOWN_MAX, GROUPS_SHOWN_MAX, AdminHttp
from proxy.observe.health import ERRORS_PER_MINUTE_MAX, Health
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import ConnectionInfo, ReadinessCheck
from quota.entity import ANONYMOUS, ClientQuotaEntity
from quota.throttle import throttle_time_ms
from tests.support.memory.proxy_state import FakeState, busy_state

ANY_PORT = HostPort("127.0.0.1", 0)


class Client:
    """Sends requests to one admin port."""

    def __init__(self, state: FakeState, address: HostPort, session: aiohttp.ClientSession) -> None:
        self.state = state
        self.address = address
        self._session = session

    async def get(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str]:
        async with self._session.request(method, f"http://{self.address}{path}", headers=headers) as response:
            assert response.headers["Cache-Control"] == "no-store"
            assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
            return response.status, await response.text()

    async def json(self, path: str) -> Any:
        status, text = await self.get(path)
        assert status == 200, text
        return json.loads(text, parse_constant=pytest.fail)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    state = busy_state()
    admin = AdminHttp(state, ANY_PORT, lag=LoopLag())
    address = await admin.start()
    async with aiohttp.ClientSession() as session:
        yield Client(state, address, session)
    await admin.stop()


async def test_metrics(client: Client) -> None:
    """/metrics is in Prometheus' text format."""
    status, text = await client.get("/metrics")
    assert status == 200
    assert 'kafka_sluice_closes_total{reason="idle"} 2.0' in text.splitlines()


async def test_healthz(client: Client) -> None:
    """/healthz is ok until internal errors exceed 100 a minute."""
    assert await client.get("/healthz") == (200, "ok\n")
    client.state.counters.internal_errors = 500
    client.state.time_ms += 10_000
    assert await client.get("/healthz") == (503, "500 internal errors within 10 s\n")


async def test_readyz(client: Client) -> None:
    """/readyz is ready if all checks hold, and lists each check and login."""
    assert (await client.json("/readyz"))["ready"] is True
    client.state.checks.append(ReadinessCheck("quota_source", False, "no success for 61 s"))
    status, text = await client.get("/readyz")
    assert status == 503
    assert json.loads(text) == {
        "ready": False,
        "state": "not ready",
        "checks": [
            {"name": "listeners", "ok": True, "detail": "2 bound", "required": True},
            {"name": "upstream", "ok": True, "detail": "answered 12 ms ago", "required": True},
            {"name": "quota_source", "ok": False, "detail": "no success for 61 s", "required": True},
        ],
        "logins": [{"name": "upstream.credentials", "state": "missing", "detail": "none", "enables": ["early topology"]}],
    }


async def test_a_check_that_is_not_required(client: Client) -> None:
    """When only checks fail that are not required, /readyz is 200 with the state degraded."""
    assert (await client.json("/readyz"))["state"] == "ready"
    client.state.checks.append(ReadinessCheck("quota_source", False, "quotas.toml: line 3", required=False))
    status, text = await client.get("/readyz")
    page = json.loads(text)
    assert (status, page["ready"], page["state"]) == (200, True, "degraded")
    client.state.checks.append(ReadinessCheck("upstream", False, "no broker has answered yet"))
    assert (await client.get("/readyz"))[0] == 503


async def test_quotas_show_every_group(client: Client) -> None:
    """/quotas lists each group with its rule, bound, rate and throttles, and null for an unlimited bound."""
    page = await client.json("/quotas")
    assert {key: page[key] for key in ("mode", "scope", "now_ms", "groups_left_out")} == {
        "mode": "delay", "scope": "broker", "now_ms": 1_000_000, "groups_left_out": 0
    }  # fmt: skip
    limited, unlimited = page["groups"]
    assert {key: limited[key] for key in limited if key != "verdicts"} == {
        "broker": "1",
        "quota_type": "Produce",
        "tags": {"user": "", "client-id": "etl"},
        "rule": "client-id=etl",
        "bound": 1_000.0,
        "observed": 5_000.0,
        "utilization": 5.0,
        "throttled_until_ms": 1_040_000,
        "throttle_count": 1,
        "throttle_ms_total": 40_000,
        "recorded_total": 50_000,
    }
    assert (unlimited["quota_type"], unlimited["bound"], unlimited["utilization"], unlimited["rule"]) == ("Fetch", None, None, "none")


async def test_quotas_show_the_switches(client: Client) -> None:
    """/quotas lists the switches and the exempt principals."""
    client.state.switch_table = dict(Switches({"entity:user=alice": "off", "all": "observe"}).table)
    client.state.exempt_principals = ["User:ops"]
    page = await client.json("/quotas")
    assert (page["switches"], page["exempt"]) == ({"all": "observe", "entity:user=alice": "off"}, ["User:ops"])


async def test_a_bucket_shows_its_tokens(client: Client) -> None:
    """/quotas shows the tokens of a mutation bucket and the wait of its verdict."""
    mutation = client.state.mutation
    mutation.update_quota(ClientQuotaEntity(None, "etl"), 4.0)
    group = mutation.group(ANONYMOUS, "etl", client.state.time_ms)
    group.record_permissive(50.0, client.state.time_ms)
    page = (await client.json("/quotas"))["groups"][-1]
    assert (page["broker"], page["quota_type"], page["bound"], page["tokens"]) == ("cluster", "ControllerMutation", 4.0, -6.0)
    assert (page["verdicts"][0]["amount"], page["verdicts"][0]["observed"], page["verdicts"][0]["throttle_ms"]) == (50.0, -6.0, 1_500)


async def test_each_verdict_can_be_worked_out_again(client: Client) -> None:
    """The numbers of each verdict in /quotas give its throttle time exactly."""
    group = client.state.produce.add(client_id="odd", bound=1_000 / 3)
    for turn in range(40):
        group.record(7_777 + turn / 7, client.state.time_ms + 137 * turn)
    (page,) = [one for one in (await client.json("/quotas"))["groups"] if one["tags"]["client-id"] == "odd"]
    assert len(page["verdicts"]) == 16
    for shown, verdict in zip(page["verdicts"], group.verdicts, strict=True):
        assert list(shown.values()) == list(verdict)
        assert throttle_time_ms(shown["observed"], shown["bound"], shown["window_ms"]) == shown["throttle_ms"]


async def test_asking_for_quotas_changes_no_sensor(client: Client) -> None:
    """Two requests for /quotas get the same response."""
    client.state.time_ms += 30_000
    assert await client.get("/quotas") == await client.get("/quotas")


async def all_pages(client: Client, path: str, key: str, *, limit: int | None = None) -> AsyncIterator[list[Any]]:
    """Yield the entries of each page from the first to the last."""
    after, asked = None, 0
    while asked == 0 or after is not None:
        query = "&".join(f"{name}={value}" for name, value in (("limit", limit), ("after", after)) if value is not None)
        page = await client.json(f"{path}?{query}")
        yield page[key]
        after, asked = page["next"], asked + 1


async def test_quotas_come_in_pages(client: Client) -> None:
    """Pages of /quotas list each group once, in order, with the number of groups left."""
    for at in range(2_500):
        client.state.produce.add(client_id=f"client-{at}")
        client.state.fetch.add(user=f"user-{at % 7}", client_id=f"client-{at}")
    pages = [page async for page in all_pages(client, "/quotas", "groups")]
    assert [len(page) for page in pages] == [GROUPS_SHOWN_MAX] * 5 + [2]
    shown = [(one["broker"], one["quota_type"], sorted(one["tags"].items())) for page in pages for one in page]
    assert len({str(one) for one in shown}) == 5_002
    order = {"Produce": 0, "Fetch": 1}
    assert shown == sorted(shown, key=lambda one: (one[0], order[one[1]], one[2]))
    first = await client.json("/quotas")
    assert (first["groups_left_out"], first["next"] is None) == (4_002, False)
    assert [page async for page in all_pages(client, "/quotas", "groups", limit=1_700)] == pages


async def test_pages_go_on_while_groups_come_and_go(client: Client) -> None:
    """A group that exists throughout is listed once although other groups come and go between pages."""
    groups = client.state.produce.groups()
    for at in range(100):
        client.state.produce.add(client_id=f"stays-{at}")
        client.state.produce.add(client_id=f"goes-{at}")
    shown: list[str] = []
    async for page in all_pages(client, "/quotas", "groups", limit=30):
        shown += [one["tags"]["client-id"] for one in page if one["tags"]["client-id"].startswith("stays")]
        gone = [group for group in groups if not group.tags["client-id"].startswith("stays")][::7]
        groups[:] = [group for group in groups if group not in gone]
        client.state.produce.add(client_id=f"came-{len(shown)}")
    assert sorted(shown) == sorted(f"stays-{at}" for at in range(100))


async def test_pages_go_on_behind_any_tags(client: Client) -> None:
    """Groups with many long tags are all listed, and `next` stays short enough for a request."""
    long, odd = "\u00e9" * 300, "\U0001f600" * 300 + "\udcff"
    for at in range(40):
        tags = {f"tag-{n}-{long}": f"{at}-{odd}" for n in range(at % 16)} | {"tenant": f"{at}"}
        client.state.produce.groups().append(EnforcedGroup(tags))
    pages = [page async for page in all_pages(client, "/quotas", "groups", limit=3)]
    assert len({one["tags"]["tenant"] for page in pages for one in page if "tenant" in one["tags"]}) == 40


async def test_long_names_are_cut_on_every_page(client: Client) -> None:
    """Long names are shortened on each page, and two with the same beginning stay distinct."""
    for end in "ab":
        client.state.produce.add(client_id="x" * 32_000 + end)
        client.state.switch_table = {f"entity:user={'u' * 4_000}": SwitchMode.OFF}
    client.state.connection_infos = [connection(1, client_id="x" * 32_000, principal="User:" + "p" * 32_000)]
    page = await client.json("/quotas")
    assert len({one["tags"]["client-id"] for one in page["groups"]}) == 3
    for path in ("/quotas", "/connections", f"/quotas?limit=2&after={(await client.json('/quotas?limit=2'))['next']}"):
        assert max(map(len, (await client.get(path))[1].split('"'))) < 400


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "after=x", "after=", "after=WzEsMiwzXQ==", "after=bnVsbA==", "after=%FF"])
@pytest.mark.parametrize("path", ["/quotas", "/connections"])
async def test_what_is_no_place_to_go_on_at_is_refused(client: Client, path: str, query: str) -> None:
    """An invalid `limit` or `after` gets 400 and one line."""
    status, text = await client.get(f"{path}?{query}")
    assert (status, text.count("\n")) == (400, 1)


def connection(number: int, **differing: Any) -> ConnectionInfo:
    info = ConnectionInfo("10.0.0.1:5", "default", "1", "User:a", "etl", 5, 6, 1, ["throttle"], 7, number)
    return info._replace(**differing)


async def test_connections_come_in_pages(client: Client) -> None:
    """Pages of /connections continue after the last connection number, whatever connections ended."""
    client.state.connection_infos = [connection(number) for number in range(1, 2_401)]
    page = await client.json("/connections")
    assert (page["open"], len(page["connections"]), page["next"]) == (4, CONNECTIONS_SHOWN_MAX, CONNECTIONS_SHOWN_MAX)
    assert page["connections"][0] == connection(1)._asdict()
    del client.state.connection_infos[:500]
    page = await client.json(f"/connections?after={page['next']}")
    assert [one["number"] for one in page["connections"]] == list(range(1_001, 2_001))
    page = await client.json(f"/connections?after={page['next']}")
    assert ([one["number"] for one in page["connections"]], page["next"]) == (list(range(2_001, 2_401)), None)
    assert len((await client.json("/connections?limit=7"))["connections"]) == 7


async def test_pages_are_made_off_the_loop(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are built in another thread than the event loop's."""
    threads: set[int] = set()
    monkeypatch.setattr(EnforcedGroup, "rate", lambda *_: threads.add(threading.get_ident()) or 0.0)
    monkeypatch.setattr(client.state, "connections", lambda *_: threads.add(threading.get_ident()) or [])
    await client.json("/quotas")
    await client.json("/connections")
    assert len(threads) >= 1
    assert threading.get_ident() not in threads


async def test_connections_show_listeners_and_the_busiest_addresses(client: Client) -> None:
    """/connections shows rates and throttles of listeners, and the busiest addresses."""
    page = await client.json("/connections")
    assert page["held"] == client.state.admission().held
    (listener,) = page["listeners"]
    assert (listener["accept_rate"], listener["throttle_ms"], listener["ip_throttle_ms"]) == (2.5, None, 41.5)
    assert page["ips"] == [{"ip": "192.0.2.7", "broker": "1", "rate": 20.0, "bound": 20, "connections": 3}]


async def test_other_pages_and_methods(client: Client) -> None:
    """Other paths get 404 and other methods 405."""
    assert await client.get("/none") == (404, "pages: / /metrics /healthz /readyz /quotas /connections /fleet\n")
    assert (await client.get("/static/..%2f..%2fetc/passwd"))[0] == 404
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await client.get("/quotas", method=method))[0] == 405


@pytest.mark.parametrize("path", ["/quotas", "/connections"])
async def test_a_rebound_name_sees_no_clients(client: Client, path: str) -> None:
    """A foreign Host header gets 403 for pages with client names, and 200 for /metrics."""
    assert (await client.get(path, Host="evil.example.org"))[0] == 403
    assert (await client.get(path, Host="localhost:1"))[0] == 200
    assert (await client.get(path, Host="[::1]:1"))[0] == 200
    assert (await client.get("/metrics", Host="sluice.monitoring.svc"))[0] == 200


@pytest.mark.parametrize(
    ("remote", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("", False)],
)
def test_who_is_on_this_machine(remote: str, loopback: bool) -> None:
    """An address is loopback also in IPv4-mapped form."""
    assert is_loopback(remote) == loopback


async def test_open_quotas_opens_them_by_any_name() -> None:
    """With `open_quotas` /quotas is served for any Host header."""
    admin = AdminHttp(FakeState(), ANY_PORT, lag=LoopLag(), open_quotas=True)
    address = await admin.start()
    async with aiohttp.ClientSession() as session:
        assert (await Client(FakeState(), address, session).get("/quotas", Host="sluice.example.org"))[0] == 200
    await admin.stop()


async def test_a_port_in_use_is_one_clear_line(client: Client) -> None:
    """A port in use fails the start with one line that names the setting and the address."""
    with pytest.raises(StartError, match=r"admin.address: 127.0.0.1:\d+ cannot be bound: Address already in use; choose another port$"):
        await AdminHttp(FakeState(), client.address, lag=LoopLag()).start()


def test_health_forgets_what_is_more_than_a_minute_old() -> None:
    """Health recovers a minute after a burst of errors."""
    health = Health()
    assert health.complaint(0, 0) is None
    assert health.complaint(ERRORS_PER_MINUTE_MAX, 1_000) is None
    assert health.complaint(ERRORS_PER_MINUTE_MAX + 1, 2_000) is not None
    for now_ms in range(12_000, 122_000, 10_000):
        complaint = health.complaint(ERRORS_PER_MINUTE_MAX + 1, now_ms)
    assert complaint is None
