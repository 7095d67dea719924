"""Applies the configured limits on connections; host names are resolved again at every change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from proxy.config.model import Connections, Listener
from proxy.telemetry import log
from quota.connections.client_address import address_of, plain_address
from quota.connections.connection_quotas import ConnectionQuotas
from quota.connections.connection_rate import UNLIMITED_CONNECTIONS
from quota.entity import DEFAULT

SETTLED_S_MAX: Final = 5.0
"""Longest wait for host names at startup; the limit of a name that is resolved later applies later."""

HostLimits = Mapping[str, int]
"""Limits by IP address or host name; `<default>` stands for every other address."""


class ConnectionLimits:
    """Applies `[connections]`, the listeners' own limits, and the creation rates of the quota source.

    A limit for an IP address applies at once. A host name is resolved in a thread, once per change, and stands for its first address.
    A name that cannot be resolved is logged, and keeps the address that it had.

    Args:
        quotas: receives the limits.
        on_applied: called after each change, because it may have freed a slot.
    """

    def __init__(self, quotas: ConnectionQuotas, on_applied: Callable[[], None]) -> None:
        self._quotas = quotas
        self._on_applied = on_applied
        self._counts: HostLimits = {}
        self._rates: HostLimits = {}
        self._addresses: dict[str, str] = {}  # of host names
        self._lookups: set[asyncio.Task[None]] = set()

    def apply(self, config: Connections, listeners: Iterable[Listener]) -> None:
        """Apply the limits of the configuration."""
        quotas = self._quotas
        rate = _or_unlimited(config.max_connection_creation_rate)
        quotas.update_process(config.max_connections, rate)
        quotas.protect(config.protected_listener)
        for listener in listeners:
            if listener.name in quotas.listeners:  # a new one needs a restart
                own_rate = listener.max_connection_creation_rate
                quotas.update_listener(listener.name, listener.max_connections or config.max_connections, own_rate or rate)
        quotas.ips.max_connections = _or_unlimited(config.max_connections_per_ip)
        quotas.ips.ipv6_prefix_bits = config.ipv6_prefix_bits
        self._counts = config.overrides
        self._applied(config.overrides)

    def apply_rates(self, rates: HostLimits) -> None:
        """Apply the creation rates of addresses."""
        self._rates = rates
        self._applied(rates)

    async def settled(self) -> None:
        """Wait until host names are resolved, at most `SETTLED_S_MAX`."""
        if self._lookups:
            await asyncio.wait(self._lookups, timeout=SETTLED_S_MAX)

    async def close(self) -> None:
        """Stop resolving names."""
        for lookup in list(self._lookups):
            lookup.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await lookup

    def _applied(self, limits: HostLimits) -> None:
        self._put_in_place()
        hosts = [host for host in limits if host != DEFAULT and address_of(host) is None]
        if hosts:
            task = asyncio.get_running_loop().create_task(self._look_up(hosts))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)

    def _put_in_place(self) -> None:
        ips = self._quotas.ips
        ips.max_overrides = self._by_address(self._counts)
        ips.replace_rates(self._rates.get(DEFAULT), self._by_address(self._rates))
        self._on_applied()

    def _by_address(self, limits: HostLimits) -> dict[str, int]:
        """Return limits by address; for an address that is also given by name, the limit given by address applies."""
        named = {self._addresses[host]: limit for host, limit in limits.items() if host in self._addresses}
        return named | {address: limit for host, limit in limits.items() if (address := address_of(host)) is not None}

    async def _look_up(self, hosts: list[str]) -> None:
        for host in hosts:
            try:
                self._addresses[host] = await _resolved_address(host)
            except OSError as error:
                kept = self._addresses.get(host)
                log.warning("ip_not_resolved", limit_key="ip_not_resolved", host=host, problem=error.strerror or str(error), kept=kept)
        self._put_in_place()
        wanted = self._counts.keys() | self._rates.keys()
        for host in self._addresses.keys() - wanted:
            del self._addresses[host]


def _or_unlimited(limit: int | None) -> int:
    return UNLIMITED_CONNECTIONS if limit is None else limit


async def _resolved_address(host: str) -> str:
    """Return the first address of a host, resolved in a thread because a resolver may be slow.

    Raises:
        OSError: it has no address.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[str] = loop.create_future()

    def resolve(address: str, error: OSError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(address)
        else:
            found.set_exception(error)

    def look_up() -> None:
        address, failure = "", None
        try:
            address = _first_address(host)
        except OSError as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(resolve, address, failure)

    threading.Thread(target=look_up, name="sluice-resolver", daemon=True).start()
    return await found


def _first_address(host: str) -> str:
    """Return the first address from the system's resolver.

    Raises:
        OSError: it has no address.
    """
    try:
        return plain_address(str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]))
    except UnicodeError as error:  # a label of more than 63 characters
        raise OSError(str(error)) from None
