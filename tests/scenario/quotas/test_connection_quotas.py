"""Limits on the number and the rate of connections: which clients are accepted, wait or are refused, and how a reload changes it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proxy.base.host_port import HostPort
from proxy.config.model import Admin, Connections, Enforcement, Listener, Quotas
from proxy.net.accept.admission import ListenerAdmission
from proxy.observe.metrics.exposition import MetricsPage
from proxy.observe.snapshot import take_snapshot
from proxy.telemetry.loop_lag import LoopLag
from quota.entity import DEFAULT
from tests.support.ports import free_bootstrap_port
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of
from tests.support.scripted.scripted_sockets import HOST, End, for_a_while, until

SHORT = Quotas(window_num=2)
TOO_EARLY_MS = 500
"""The longest throttle of a third connection at a rate of two a second."""
"""Two samples of one second: a rate of N lets N connect at once."""
OTHER_HOST = "127.0.0.2"


def admission_of(sluice: RunningGateway, name: str = "test") -> ListenerAdmission:
    return sluice.app.admission.listeners[name]


async def served(client: ScriptedClient) -> bool:
    """Return whether a client gets a response; False when it was refused."""
    try:
        await client.send(api_versions_request(1))
        return correlation_id_of(await client.read_frame()) == 1
    except ConnectionError:
        return False


async def come(sluice: RunningGateway, count: int, **options: Any) -> list[ScriptedClient]:
    """Connect `count` clients one after the other and check that each is served."""
    clients = []
    for _ in range(count):
        clients.append(await sluice.client(**options))
        assert await served(clients[-1])
    return clients


def two_listeners(**protected: Any) -> tuple[Listener, ...]:
    """Return the listeners `test` and `internal`."""
    ports = free_bootstrap_port(), free_bootstrap_port()
    return (
        Listener(address=HostPort(HOST, ports[0]), name="test"),
        Listener(address=HostPort(HOST, ports[1]), name="internal", **protected),
    )


async def test_an_address_that_comes_too_fast_is_held_and_closed() -> None:
    """A connection above its address's rate is held unread and then closed, and other addresses are served meanwhile."""
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT, clean=False) as sluice:
        sluice.app.connection_limits.apply_rates({HOST: 2})
        await come(sluice, 2)
        one_too_many = await sluice.client()
        await until(lambda: sluice.app.admission.held == 1)
        await come(sluice, 1, source=OTHER_HOST)
        assert await one_too_many.read_to_end() == b""
        assert one_too_many.ended is End.FIN
        assert sluice.closes == {"ip_connection_rate": 1}
        assert sluice.counters.upstream_connects == 3
        assert 0 < admission_of(sluice).quota.ip_throttle_time.peek(sluice.app.state.now_ms()) <= TOO_EARLY_MS
        assert admission_of(sluice).quota.connections == len(sluice.connections) == 3


async def test_looking_changes_no_rate() -> None:
    """Reading the status of connections leaves the samples of the rate sensors unchanged."""
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT) as sluice:
        sluice.app.connection_limits.apply_rates({HOST: 3, OTHER_HOST: 5})
        await come(sluice, 2)
        await come(sluice, 4, source=OTHER_HOST)
        quotas, state = sluice.app.admission.quotas, sluice.app.state
        rates = [quotas.broker_rate, admission_of(sluice).quota.rate, *(rate for _, rate in quotas.ips.rates())]

        def samples() -> list[object]:
            return [(list(rate._values), list(rate._starts), list(rate._lasts), rate._value, rate._last_ms) for rate in rates]

        before = samples()
        await asyncio.sleep(0.01)
        status = state.admission()
        assert [listener.connections for listener in status.listeners] == [6]
        assert status.tracked_ips == 2
        busiest = state.busiest_ips(1)
        assert [(ip.ip, ip.broker, ip.bound, ip.connections) for ip in busiest] == [(OTHER_HOST, "bootstrap", 5, 4)]
        assert busiest[0].rate == pytest.approx(4, rel=0.5)
        assert samples() == before


@pytest.mark.parametrize(("asked_for", "shown"), [(0, []), (2, ["127.0.0.4", "127.0.0.3"])])
async def test_addresses_have_series_only_on_request(asked_for: int, shown: list[str]) -> None:
    """Metrics have series for the `ip_series` fastest addresses, and for none by default."""
    admin = Admin(ip_series=asked_for)
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT, admin=admin) as sluice:
        sluice.app.connection_limits.apply_rates({DEFAULT: 100})
        for count, source in enumerate((HOST, OTHER_HOST, "127.0.0.3", "127.0.0.4"), 1):
            await come(sluice, 2 * count, source=source)
        page = MetricsPage(LoopLag()).render(take_snapshot(sluice.app.state)).decode()
        lines = [line for line in page.splitlines() if line.startswith("kafka_connection_ip_accept_rate{")]
        assert [line.split()[0] for line in lines] == [f'kafka_connection_ip_accept_rate{{broker="bootstrap",ip="{ip}"}}' for ip in shown]
        assert [float(line.split()[1]) for line in lines] == sorted((float(line.split()[1]) for line in lines), reverse=True)
        assert len(sluice.app.state.busiest_ips(100)) == 4


async def test_held_sockets_are_closed_the_oldest_first() -> None:
    """Held sockets are closed in the order in which they were accepted."""
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT) as sluice:
        sluice.app.connection_limits.apply_rates({OTHER_HOST: 0})
        order: list[int] = []

        async def stay(number: int) -> None:
            client = await sluice.client(source=OTHER_HOST)
            await client.read_to_end()
            order.append(number)

        stays = []
        for number in range(8):
            stays.append(asyncio.ensure_future(stay(number)))
            await until(lambda number=number: sluice.app.admission.held == number + 1)  # type: ignore[misc]
            await asyncio.sleep(0.02)
        await asyncio.gather(*stays)
        assert order == list(range(8))
        assert sluice.closes["ip_connection_rate"] == 8


async def test_what_cannot_be_held_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection beyond `HELD_MAX` held sockets is closed at once."""
    monkeypatch.setattr("proxy.net.accept.admission.HELD_MAX", 3)
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT) as sluice:
        sluice.app.connection_limits.apply_rates({OTHER_HOST: 0})
        clients = [await sluice.client(source=OTHER_HOST) for _ in range(5)]
        await sluice.until_closed("ip_connection_rate_unheld", 2)
        assert sluice.app.admission.held == 3
        for client in clients:
            assert await client.read_to_end() == b""
        assert sluice.closes == {"ip_connection_rate_unheld": 2, "ip_connection_rate": 3}


async def test_an_address_with_too_many_connections_is_refused_until_one_ends() -> None:
    """An address above its `max_connections_per_ip`, or its override, is refused until one of its connections ends."""
    limits = Connections(max_connections_per_ip=2, overrides={OTHER_HOST: 3})
    async with ScriptedBroker() as broker, open_gateway(broker, connections=limits, clean=False) as sluice:
        clients = await come(sluice, 2)
        assert not await served(await sluice.client())
        await come(sluice, 3, source=OTHER_HOST)
        assert not await served(await sluice.client(source=OTHER_HOST))
        assert sluice.closes == {"max_connections_per_ip": 2}
        clients[0].close()
        await sluice.until_closed("client_closed")
        await come(sluice, 1)
        assert sluice.counters.upstream_connects == 6
        assert {key[1]: count for key, count in sluice.app.admission.quotas.ips.counts.items()} == {HOST: 2, OTHER_HOST: 3}


@pytest.mark.parametrize(("scope", "second"), [("broker", True), ("cluster", False)])
async def test_addresses_count_at_each_broker(scope: Any, second: bool) -> None:
    """With scope `broker` connections of an address count for each broker, with scope `cluster` together."""
    limits = Connections(max_connections_per_ip=1)
    async with (
        ScriptedBroker() as broker,
        open_gateway(broker, connections=limits, enforcement=Enforcement(scope=scope), clean=False) as sluice,
    ):
        await come(sluice, 1)
        assert await served(await sluice.client(sluice.broker_port(1))) is second
        assert not await served(await sluice.client())


async def test_an_ipv4_client_of_an_ipv6_socket_is_the_ipv4_address() -> None:
    """A limit for an IPv4 address applies to an IPv4 client that connects through `::`."""
    listener = Listener(address=HostPort("::", free_bootstrap_port()), name="test", advertised_host=HOST)
    limits = Connections(max_connections_per_ip=5, overrides={HOST: 1})
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(listener,), connections=limits, clean=False) as sluice:
        await come(sluice, 1)
        assert not await served(await sluice.client())
        await come(sluice, 1, source=OTHER_HOST)


async def test_a_rate_stops_all_ports_of_its_listener_and_no_other() -> None:
    """Above a listener's rate no port of the listener accepts, another listener does, and all clients are served in the end."""
    listeners = two_listeners()
    listeners = (Listener(address=listeners[0].address, name="test", max_connection_creation_rate=2), listeners[1])
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT, listeners=listeners) as sluice:
        await come(sluice, 2)
        early = await sluice.client()
        await until(lambda: admission_of(sluice).blocked_since_ms is not None)
        behind = [await sluice.client(sluice.broker_port(1)), await sluice.client()]
        accepted = sluice.counters.connections_accepted["test"]
        internal = admission_of(sluice, "internal")
        await come(sluice, 3, port=sluice.listeners[1].bootstrap_port)
        assert internal.blocked_since_ms is None
        assert sluice.counters.connections_accepted["test"] == accepted == 3
        for client in (early, *behind):
            assert await served(client)
        now_ms = sluice.app.state.now_ms()
        assert admission_of(sluice).quota.blocked_ms >= 500
        assert admission_of(sluice).quota.throttle_time.peek(now_ms) >= 500
        assert 0 < admission_of(sluice).quota.blocked_ratio(now_ms) <= 1
        assert internal.quota.blocked_ms == 0
        assert sluice.counters.accepts_waited >= 1


async def test_the_rate_of_the_process_holds_for_all_listeners() -> None:
    """Connections to one listener delay those to another when the rate of the process is exceeded."""
    limits = Connections(max_connection_creation_rate=2)
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=SHORT, listeners=two_listeners(), connections=limits) as sluice:
        await come(sluice, 2)
        waiting = await sluice.client(sluice.listeners[1].bootstrap_port)
        await until(lambda: admission_of(sluice, "internal").blocked_since_ms is not None)
        assert await served(waiting)
        assert 0 < admission_of(sluice, "internal").quota.throttle_time.peek(sluice.app.state.now_ms()) <= TOO_EARLY_MS


async def test_who_leaves_wakes_who_waits_for_a_slot() -> None:
    """At `max_connections` the end of a connection lets in the next one, without a timer."""
    async with ScriptedBroker() as broker, open_gateway(broker, connections=Connections(max_connections=2), serves=False) as sluice:
        inside = await come(sluice, 2)
        outside = [await sluice.client() for _ in range(3)]
        await until(lambda: admission_of(sluice).blocked_since_ms is not None)
        assert admission_of(sluice)._timer is None
        assert sluice.counters.connections_accepted["test"] == 3
        for leaving, coming in zip([*inside, outside[0]], outside, strict=True):
            leaving.close()
            assert await served(coming)
            assert len(sluice.connections) <= 2
        assert sluice.closes == {"client_closed": 3}


async def test_who_waits_for_a_slot_waits_for_its_own_listener_too() -> None:
    """A listener at its own `max_connections` makes its clients wait, and clients of another listener do not."""
    listeners = two_listeners()
    listeners = (Listener(address=listeners[0].address, name="test", max_connections=1), listeners[1])
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=listeners, serves=False) as sluice:
        (inside,) = await come(sluice, 1)
        outside = await sluice.client()
        await until(lambda: admission_of(sluice).blocked_since_ms is not None)
        await come(sluice, 2, port=sluice.listeners[1].bootstrap_port)
        inside.close()
        assert await served(outside)


async def test_others_make_room_for_the_protected_listener() -> None:
    """At `max_connections` a client of the protected listener is served, and the least active connection of another listener is closed."""
    limits = Connections(max_connections=3, protected_listener="internal")
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=two_listeners(), connections=limits, serves=False) as sluice:
        first, second, third = await come(sluice, 3)
        await asyncio.sleep(0.01)  # the clock counts in milliseconds
        for client in (first, third):
            assert await served(client)
        friend = await sluice.client(sluice.listeners[1].bootstrap_port)
        assert await served(friend)
        assert await second.read_to_end() == b""
        assert sluice.closes == {"made_room": 1}
        assert await served(first)
        assert await served(third)
        assert sluice.app.admission.quotas.total == 3


async def test_the_waiting_and_the_held_end_with_the_process() -> None:
    """A drain closes connections that wait or are held, each with a reason."""
    limits = Connections(max_connections=1)
    async with ScriptedBroker() as broker, open_gateway(broker, connections=limits, clean=False) as sluice:
        held = await sluice.client(source=OTHER_HOST)
        sluice.app.connection_limits.apply_rates({OTHER_HOST: 0})
        assert await served(held)
        held.close()
        await sluice.until_closed("client_closed")
        held = await sluice.client(source=OTHER_HOST)
        await until(lambda: sluice.app.admission.held == 1)
        await come(sluice, 1)
        waiting = await sluice.client()
        await until(lambda: admission_of(sluice).blocked_since_ms is not None)
        await sluice.app.drain()
        for client in (held, waiting):
            assert await client.read_to_end() == b""
        assert sluice.closes == {"client_closed": 1, "ip_connection_rate": 1, "drain": 2}
        assert sum(sluice.counters.connections_accepted.values()) == sum(sluice.closes.values())


async def test_only_observing_refuses_no_connection() -> None:
    """In mode `observe` rates and counts of addresses are measured, and every client is served."""
    limits = Connections(max_connections_per_ip=2, max_connection_creation_rate=3)
    async with ScriptedBroker() as broker, open_gateway(broker, mode="observe", quotas=SHORT, connections=limits) as sluice:
        sluice.app.connection_limits.apply_rates({DEFAULT: 1})
        await come(sluice, 8)
        (listener,) = sluice.app.state.admission().listeners
        assert listener.ip_throttle_ms > 0
        assert listener.connections == 8
        assert sluice.closes == {}
        assert sluice.counters.accepts_waited == 0


async def test_a_changed_quota_file_holds_for_the_next_connection(tmp_path: Path) -> None:
    """A changed connection rate applies to the next connection, an invalid file changes nothing, and open connections stay."""
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("")
    async with ScriptedBroker() as broker, open_gateway(broker, quotas=Quotas(path=quotas, window_num=2), clean=False) as sluice:
        await come(sluice, 1)
        quotas_of = sluice.app.quotas
        quotas.write_text(f'[[quota]]\nip = "{HOST}"\nconnection_creation_rate = 0\n')
        assert await quotas_of.reload()
        assert not await served(await sluice.client())
        await come(sluice, 1, source=OTHER_HOST)
        quotas.write_text('[[quota]]\nip = "127.0.0.1"\nconnection_creation_rate = -1\n')
        assert not await quotas_of.reload()
        assert not await served(await sluice.client())
        quotas.write_text('[[quota]]\nip = "<default>"\nconnection_creation_rate = 1000\n')
        assert await quotas_of.reload()
        await come(sluice, 2)
        assert len(sluice.connections) == 4
        assert sluice.closes == {"ip_connection_rate": 2}


async def test_a_reload_changes_limits_without_a_disconnect() -> None:
    """A higher limit lets in waiting clients; a lower one closes no client and admits none until enough have left."""
    async with ScriptedBroker() as broker, open_gateway(broker, connections=Connections(max_connections=2), serves=False) as sluice:
        inside = await come(sluice, 2)
        outside = await sluice.client()
        await until(lambda: admission_of(sluice).blocked_since_ms is not None)
        assert await sluice.reload(connections=Connections(max_connections=3))
        assert await served(outside)
        assert await sluice.reload(connections=Connections(max_connections=1))
        assert [await served(client) for client in (*inside, outside)] == [True] * 3
        late = await sluice.client()
        await late.send(api_versions_request(9))
        for client in (*inside, outside):
            await for_a_while(0.05, lambda: late.take_waiting() == b"")
            client.close()
        assert correlation_id_of(await late.read_frame()) == 9


async def test_a_reload_changes_a_listener_of_its_own() -> None:
    """A reload changes the limits of an open listener."""
    async with ScriptedBroker() as broker, open_gateway(broker, serves=False) as sluice:
        (listener,) = sluice.source.config.listeners
        lowered = Listener(address=listener.address, name=listener.name, max_connections=1, max_connection_creation_rate=7)
        assert await sluice.reload(listeners=(lowered,))
        (inside,) = await come(sluice, 1)
        outside = await sluice.client()
        await until(lambda: admission_of(sluice).blocked_since_ms is not None)
        assert admission_of(sluice).quota.rate.bound == 7
        inside.close()
        assert await served(outside)
