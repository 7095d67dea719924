"""The port for operators, over real sockets on the loopback."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from proxy.errors import StartError
from proxy.host_port import HostPort
from proxy.observe.admin_access import is_loopback
from proxy.observe.admin_http import CONNECTIONS_SHOWN_MAX, AdminHttp
from proxy.observe.health import ERRORS_PER_MINUTE_MAX, Health
from proxy.observe.loop_lag import LoopLag
from proxy.status import ConnectionInfo, ReadinessCheck
from proxy.switches import Switches
from quota.entity import ANONYMOUS, ClientQuotaEntity
from quota.throttle import throttle_time_ms
from tests.support.proxy_state import FakeState, busy_state

ANY_PORT = HostPort("127.0.0.1", 0)


class Client:
    """Asks one admin port."""

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
    """The page comes in Prometheus' text format."""
    status, text = await client.get("/metrics")
    assert status == 200
    assert 'kafka_sluice_closes_total{reason="idle"} 2.0' in text.splitlines()


async def test_healthz(client: Client) -> None:
    """Well, until errors of our own come faster than 100 a minute."""
    assert await client.get("/healthz") == (200, "ok\n")
    client.state.counters.internal_errors = 500
    client.state.time_ms += 10_000
    assert await client.get("/healthz") == (503, "500 internal errors within 10 s\n")


async def test_readyz(client: Client) -> None:
    """Ready when every condition holds; a condition that does not is named, and so are accounts that are no condition."""
    assert (await client.json("/readyz"))["ready"] is True
    client.state.checks.append(ReadinessCheck("quota_source", False, "no success for 61 s"))
    status, text = await client.get("/readyz")
    assert status == 503
    assert json.loads(text) == {
        "ready": False,
        "checks": [
            {"name": "listeners", "ok": True, "detail": "2 bound"},
            {"name": "upstream", "ok": True, "detail": "answered 12 ms ago"},
            {"name": "quota_source", "ok": False, "detail": "no success for 61 s"},
        ],
        "logins": [{"name": "upstream.credentials", "state": "missing", "detail": "none", "enables": ["early topology"]}],
    }


async def test_quotas_show_every_group(client: Client) -> None:
    """Each live group with its rule, bound and rate; an unlimited bound is null."""
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
    """Every switch by its target, and who is exempt."""
    client.state.switch_table = dict(Switches({"entity:user=alice": "off", "all": "observe"}).table)
    client.state.exempt_principals = ["User:ops"]
    page = await client.json("/quotas")
    assert (page["switches"], page["exempt"]) == ({"all": "observe", "entity:user=alice": "off"}, ["User:ops"])


async def test_a_bucket_shows_its_tokens(client: Client) -> None:
    """Controller mutations are those of the cluster; the wait of their verdict follows from the balance."""
    mutation = client.state.mutation
    mutation.update_quota(ClientQuotaEntity(None, "etl"), 4.0)
    group = mutation.group(ANONYMOUS, "etl", client.state.time_ms)
    group.record_permissive(50.0, client.state.time_ms)
    page = (await client.json("/quotas"))["groups"][-1]
    assert (page["broker"], page["quota_type"], page["bound"], page["tokens"]) == ("cluster", "ControllerMutation", 4.0, -6.0)
    assert (page["verdicts"][0]["amount"], page["verdicts"][0]["observed"], page["verdicts"][0]["throttle_ms"]) == (50.0, -6.0, 1_500)


async def test_each_verdict_can_be_worked_out_again(client: Client) -> None:
    """Floats survive JSON bit for bit, so throttle = (O - T) / T x W gives the same milliseconds."""
    group = client.state.produce.add(client_id="odd", bound=1_000 / 3)
    for turn in range(40):
        group.record(7_777 + turn / 7, client.state.time_ms + 137 * turn)
    (page,) = [one for one in (await client.json("/quotas"))["groups"] if one["tags"]["client-id"] == "odd"]
    assert len(page["verdicts"]) == 16
    for shown, verdict in zip(page["verdicts"], group.verdicts, strict=True):
        assert list(shown.values()) == list(verdict)
        assert throttle_time_ms(shown["observed"], shown["bound"], shown["window_ms"]) == shown["throttle_ms"]


async def test_asking_for_quotas_changes_no_sensor(client: Client) -> None:
    """The same question gives the same answer."""
    client.state.time_ms += 30_000
    assert await client.get("/quotas") == await client.get("/quotas")


async def test_connections_are_bounded(client: Client) -> None:
    """A thousand connections are shown, however many there are."""
    info = ConnectionInfo("10.0.0.1:5", "default", "1", "User:a", "etl", 5, 6, 1, ["throttle"], 7)
    client.state.connection_infos = [info] * (CONNECTIONS_SHOWN_MAX + 5)
    page = await client.json("/connections")
    assert (page["open"], len(page["connections"])) == (4, CONNECTIONS_SHOWN_MAX)
    assert page["connections"][0] == info._asdict()


async def test_connections_show_listeners_and_the_busiest_addresses(client: Client) -> None:
    """Rates, delays and counts are numbers; what nobody waited for is null."""
    page = await client.json("/connections")
    assert page["held"] == client.state.admission().held
    (listener,) = page["listeners"]
    assert (listener["accept_rate"], listener["throttle_ms"], listener["ip_throttle_ms"]) == (2.5, None, 41.5)
    assert page["ips"] == [{"ip": "192.0.2.7", "broker": "1", "rate": 20.0, "bound": 20, "connections": 3}]


async def test_other_pages_and_methods(client: Client) -> None:
    """Nothing else is there, and nothing can be changed."""
    assert await client.get("/") == (404, "pages: /metrics /healthz /readyz /quotas /connections\n")
    assert (await client.get("/static/..%2f..%2fetc/passwd"))[0] == 404
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await client.get("/quotas", method=method))[0] == 405


@pytest.mark.parametrize("path", ["/quotas", "/connections"])
async def test_a_rebound_name_sees_nobody(client: Client, path: str) -> None:
    """A browser that was lured here by a name of a stranger gets no names of clients; metrics are open."""
    assert (await client.get(path, Host="evil.example.org"))[0] == 403
    assert (await client.get(path, Host="localhost:1"))[0] == 200
    assert (await client.get(path, Host="[::1]:1"))[0] == 200
    assert (await client.get("/metrics", Host="sluice.monitoring.svc"))[0] == 200


@pytest.mark.parametrize(
    ("remote", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("", False)],
)
def test_who_is_on_this_machine(remote: str, loopback: bool) -> None:
    """An IPv4 address in IPv6 clothes is what it is."""
    assert is_loopback(remote) == loopback


async def test_open_quotas_opens_them_by_any_name() -> None:
    """The operator may open the pages to other machines."""
    admin = AdminHttp(FakeState(), ANY_PORT, lag=LoopLag(), open_quotas=True)
    address = await admin.start()
    async with aiohttp.ClientSession() as session:
        assert (await Client(FakeState(), address, session).get("/quotas", Host="sluice.example.org"))[0] == 200
    await admin.stop()


async def test_a_port_in_use_is_one_clear_line(client: Client) -> None:
    """Starting where someone listens already names the setting and the address."""
    with pytest.raises(
        StartError, match=r"admin.address: 127.0.0.1:\d+ cannot be listened on: Address already in use; choose another port$"
    ):
        await AdminHttp(FakeState(), client.address, lag=LoopLag()).start()


def test_health_forgets_what_is_more_than_a_minute_old() -> None:
    """A burst makes the process unwell for a minute, not for ever."""
    health = Health()
    assert health.complaint(0, 0) is None
    assert health.complaint(ERRORS_PER_MINUTE_MAX, 1_000) is None
    assert health.complaint(ERRORS_PER_MINUTE_MAX + 1, 2_000) is not None
    for now_ms in range(12_000, 122_000, 10_000):
        complaint = health.complaint(ERRORS_PER_MINUTE_MAX + 1, now_ms)
    assert complaint is None
