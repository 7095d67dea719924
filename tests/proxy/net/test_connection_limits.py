"""How connection limits of the files are applied."""

import asyncio
import logging
import socket
import threading
from typing import Any

import pytest

from proxy.base.host_port import HostPort
from proxy.config.model import Connections, Listener
from proxy.net.accept.connection_limits import ConnectionLimits
from quota.connections.connection_quotas import ConnectionQuotas
from quota.connections.connection_rate import UNLIMITED_CONNECTIONS
from quota.entity import DEFAULT


class Resolver:
    """A fake resolver that records the names and threads of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **addresses: str) -> None:
        self.addresses = addresses
        self.threads: set[int] = set()
        self.asked: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.threads.add(threading.get_ident())
        self.asked.append(host)
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(2, 1, 6, "", (self.addresses[host], 0)), (2, 1, 6, "", ("203.0.113.9", 0))]


class Limited:
    """Connection quotas of two listeners with their limits."""

    def __init__(self) -> None:
        self.quotas = ConnectionQuotas(["a", "b"])
        self.applied = 0
        self.limits = ConnectionLimits(self.quotas, self._on_applied)

    def _on_applied(self) -> None:
        self.applied += 1

    def bounds(self, *addresses: str) -> list[int]:
        return [self.quotas.ips.rate_bound(address) for address in addresses]


def listener(name: str, **limits: int) -> Listener:
    return Listener(address=HostPort("127.0.0.1", 1), name=name, **limits)


async def test_a_listener_without_limits_has_those_of_the_process() -> None:
    """A listener's own limits apply, others are inherited, and a listener that is not open is ignored."""
    limited = Limited()
    config = Connections(max_connections=10, max_connection_creation_rate=4, max_connections_per_ip=3, overrides={"192.0.2.1": 5})
    limited.limits.apply(config, [listener("a", max_connections=20), listener("b", max_connection_creation_rate=2), listener("new")])
    quotas = limited.quotas
    assert (quotas.max_connections, quotas.broker_rate.bound) == (10, 4)
    assert [(one.max_connections, one.rate.bound) for one in quotas.listeners.values()] == [(20, 4), (10, 2)]
    assert [quotas.ips.max_of(address) for address in ("192.0.2.1", "192.0.2.2")] == [5, 3]
    limited.limits.apply(Connections(), [listener("a"), listener("b")])
    assert quotas.broker_rate.bound == quotas.listeners["b"].rate.bound == quotas.ips.max_of("192.0.2.1") == UNLIMITED_CONNECTIONS
    assert limited.applied == 2


async def test_host_names_are_looked_up_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host names are resolved off the event loop, to their first address, and an address in the table precedes a name."""
    resolver = Resolver(monkeypatch, etl="192.0.2.7", mapped="::ffff:192.0.2.8", twice="192.0.2.9")
    limited = Limited()
    limited.limits.apply_rates({DEFAULT: 1, "192.0.2.9": 9, "etl": 7, "mapped": 8, "twice": 2})
    assert limited.bounds("192.0.2.9", "192.0.2.7", "192.0.2.8") == [9, 1, 1]
    await limited.limits.settled()
    assert limited.bounds("192.0.2.9", "192.0.2.7", "192.0.2.8", "203.0.113.9") == [9, 7, 8, 1]
    assert threading.get_ident() not in resolver.threads
    assert resolver.asked == ["etl", "mapped", "twice"]


async def test_a_name_that_is_not_found_is_reported_and_the_rest_applies(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that cannot be resolved keeps its last address, and the other limits apply."""
    resolver = Resolver(monkeypatch, etl="192.0.2.7")
    limited = Limited()
    limited.limits.apply_rates({"etl": 7, "nobody": 3, "192.0.2.1": 5})
    await limited.limits.settled()
    assert limited.bounds("192.0.2.7", "192.0.2.1", "192.0.2.2") == [7, 5, UNLIMITED_CONNECTIONS]
    resolver.addresses.clear()
    with caplog.at_level(logging.WARNING):
        limited.limits.apply_rates({"etl": 6})
        await limited.limits.settled()
    assert limited.bounds("192.0.2.7", "192.0.2.1") == [6, UNLIMITED_CONNECTIONS]
    assert [record.fields["kept"] for record in caplog.records if record.getMessage() == "ip_not_resolved"][-1] == "192.0.2.7"


async def test_overrides_may_name_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overrides may be host names, and a removed one no longer applies."""
    Resolver(monkeypatch, etl="192.0.2.7")
    limited = Limited()
    limited.limits.apply(Connections(max_connections_per_ip=1, overrides={"etl": 5}), [])
    await limited.limits.settled()
    assert limited.quotas.ips.max_of("192.0.2.7") == 5
    limited.limits.apply(Connections(max_connections_per_ip=1, overrides={"192.0.2.8": 2}), [])
    assert [limited.quotas.ips.max_of(f"192.0.2.{last}") for last in (7, 8)] == [1, 2]


async def test_a_resolver_that_hangs_delays_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that hangs delays the start for a limited time and the end not at all."""
    release = threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        release.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr("proxy.net.accept.connection_limits.SETTLED_S_MAX", 0.01)
    limited = Limited()
    limited.limits.apply_rates({"slow": 7, "192.0.2.1": 5})
    await limited.limits.settled()
    assert limited.bounds("192.0.2.1") == [5]
    try:
        await asyncio.wait_for(limited.limits.close(), 10)
    finally:
        release.set()
