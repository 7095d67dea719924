"""The connections that the members of a fleet share: the quotas of the supervisor, and what the hub publishes and hears about them.

Each connection that a rate counts here counts in the rates of the other members, unchecked, when it becomes known there. Of an address or a
principal with a limit the open connections here and the last counts of the members that are heard count together.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from proxy.fleet.connections.entries import connection_digest
from proxy.fleet.connections.other_members import OtherMembers, entries_in
from proxy.fleet.connections.own_connections import OwnConnections
from proxy.fleet.connections.pending import MESSAGE_MAX
from proxy.fleet.connections.unclaimed import Unclaimed
from proxy.observe.fleet import SharedConnectionsStatus
from proxy.session.login.principal_connections import PrincipalConnections
from proxy.workers.messaging.messages import OtherConnections
from quota.connections.connection_quotas import ConnectionQuotas
from quota.connections.connection_rate import ConnectionRate
from quota.connections.elsewhere import AddressKey, RateKey
from quota.connections.ip_connections import RATES_MAX
from quota.entity import KafkaPrincipal

GATHER_S: Final = 0.01
"""Time in which changes are gathered for one message to the hub, as with the usage of a worker."""
TICK_S: Final = 0.5
DIGESTS_KEPT: Final = 4_096


class SharedConnections:
    """Connections of this member and of the others.

    Args:
        quotas, principals: of the supervisor.
        fleet_key: key of digests.
        now_ms: monotonic clock.

    Attributes:
        publish: receives entries, as bytes.
    """

    def __init__(self, quotas: ConnectionQuotas, principals: PrincipalConnections, fleet_key: bytes, now_ms: Callable[[], int]) -> None:
        self._quotas = quotas
        self._principals = principals
        self._fleet_key = fleet_key
        self._now_ms = now_ms
        rate = quotas.broker_rate
        self._num_samples, self._window_ms = rate.num_samples, rate.window_ms
        self._own = OwnConnections(self._num_samples * self._window_ms)
        self._others = OtherMembers(self._num_samples * self._window_ms)
        self._unclaimed = Unclaimed(self._num_samples * self._window_ms)
        self._digest = functools.lru_cache(maxsize=DIGESTS_KEPT)(self._new_digest)
        self._listeners = {self._digest(of): of for of in (None, *quotas.listeners)}
        self._addresses: dict[bytes, AddressKey] = {}  # those with a rate here, in the order of their last connection
        self._inherited: set[bytes] = set()
        self._early: list[OtherConnections] | None = []
        self._changed_addresses: dict[AddressKey, None] = {}
        self._changed_principals: dict[KafkaPrincipal, None] = {}
        self._changed = asyncio.Event()
        self._recorded = 0
        self.publish: Callable[[bytes], None] = _ignore
        quotas.share(self)
        principals.elsewhere = self

    def begin(self, continued: Iterable[ConnectionRate]) -> None:
        """Begin to record what is counted at other members; what was heard until now is recorded first, at its times.

        Args:
            continued: rates of the supervisor that was replaced. They contain what its hub has read.
        """
        self._addresses = {self._digest(key): key for key, _ in self._quotas.ips.rates()}
        known = set(continued)
        self._inherited = {self._digest(of) for of, rate in self._all_rates() if rate in known}
        early, self._early = self._early or [], None
        for message in early:
            self._take(message)

    def _all_rates(self) -> Iterator[tuple[RateKey, ConnectionRate]]:
        yield None, self._quotas.broker_rate
        for name, listener in self._quotas.listeners.items():
            yield name, listener.rate
        yield from self._quotas.ips.rates()

    def _new_digest(self, of: RateKey) -> bytes:
        if of is None:
            return connection_digest(self._fleet_key, "process")
        named = ("listener", of) if isinstance(of, str) else ("address", *of)
        return connection_digest(self._fleet_key, *named)

    def _principal_digest(self, principal: KafkaPrincipal) -> bytes:
        return connection_digest(self._fleet_key, "principal", principal.type, principal.name)

    # --- from the quotas, see `Elsewhere` and `PrincipalsElsewhere`

    def rate_counted(self, of: RateKey, change: int) -> None:
        """Publish that connections were counted."""
        digest = self._digest(of)
        if isinstance(of, tuple):
            self._note_address(digest, of)
        self._own.count(digest, change, self._now_ms())
        self._changed.set()

    def open_changed(self, key: AddressKey) -> None:
        """Publish the number of open connections of an address."""
        self._changed_addresses[key] = None
        self._changed.set()

    def principal_changed(self, principal: KafkaPrincipal) -> None:
        """Publish the number of open connections of a principal."""
        self._changed_principals[principal] = None
        self._changed.set()

    def open_of(self, key: AddressKey, now_ms: int) -> int:
        """Return how many open connections an address has at the other members."""
        return self._others.open_of(self._digest(key), now_ms)

    def open_of_principal(self, principal: KafkaPrincipal) -> int:
        """Return how many open connections a principal has at the other members."""
        return self._others.open_of(self._principal_digest(principal), self._now_ms())

    def begin_rate(self, key: AddressKey) -> list[tuple[int, int]]:
        """An address has a rate here from now on; return what the others counted within the window, at its times."""
        digest = self._digest(key)
        self._note_address(digest, key)
        return self._unclaimed.pop(digest, self._now_ms())

    def _note_address(self, digest: bytes, key: AddressKey) -> None:
        self._addresses.pop(digest, None)
        if len(self._addresses) >= RATES_MAX:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[digest] = key

    def limits_changed(self) -> None:
        """Publish all counts that have a limit now."""
        self._changed_addresses.update(dict.fromkeys(self._quotas.ips.counts))
        self._changed_principals.update(dict.fromkeys(self._principals.counts()))
        self._changed.set()

    # --- to the hub

    def publish_all(self) -> None:
        """Publish everything again, since a hub has started."""
        self._own.publish_all()
        self._changed.set()

    async def run_forever(self) -> None:
        """Publish changes until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            self.flush()
            self.expire()

    def flush(self) -> None:
        """Publish what has changed; what is left after the most entries of a message waits for the next call."""
        now_ms = self._now_ms()
        self._read_counts(now_ms)
        entries = self._own.changes(MESSAGE_MAX, now_ms)
        if len(entries):
            self.publish(entries.tobytes())
        if len(entries) == MESSAGE_MAX:
            self._changed.set()

    def _read_counts(self, now_ms: int) -> None:
        """Note the present numbers of open connections that have changed; without a limit they are not shared."""
        addresses, self._changed_addresses = self._changed_addresses, {}
        for key in addresses:
            self._own.set_open(self._digest(key), self._quotas.ips.limited_count(key), now_ms)
        principals, self._changed_principals = self._changed_principals, {}
        for principal in principals:
            count = 0 if self._principals.limit_of(principal) is None else self._principals.counts().get(principal, 0)
            self._own.set_open(self._principal_digest(principal), count, now_ms)

    def publish_last(self) -> None:
        """Publish that no connection is open any more, because this process ends."""
        self._own.close_all()
        self._changed_addresses, self._changed_principals = {}, {}
        self.flush()

    def status(self) -> SharedConnectionsStatus:
        """Return what other members have told this one."""
        return SharedConnectionsStatus(self._others.open_sum(self._now_ms()), self._recorded)

    # --- from the hub

    def heard(self, silent_ms: Mapping[int, int]) -> None:
        """Note how long ago the last message of each member came."""
        self._others.heard(silent_ms, self._now_ms())

    def take(self, message: OtherConnections) -> None:
        """Note and record entries of another member."""
        if self._early is None:
            self._take(message)
        else:
            self._early.append(message)

    def _take(self, message: OtherConnections) -> None:
        new = self._others.take(message.incarnation, entries_in(message.entries), message.at_ms)
        now_ms = self._now_ms()
        if now_ms - message.at_ms >= self._num_samples * self._window_ms:
            return
        for digest, connections in new:
            if message.is_new or digest not in self._inherited:
                self._record(digest, connections, min(message.at_ms, now_ms))

    def _record(self, digest: bytes, connections: int, at_ms: int) -> None:
        """Record what another member counted in the rate of the same name; without one it is kept for an address that comes later."""
        self._recorded += connections
        if digest in self._listeners:
            self._quotas.record_elsewhere(self._listeners[digest], connections, at_ms)
            return
        key = self._addresses.get(digest)
        if key is None or not self._quotas.ips.record_elsewhere(key, connections, at_ms):
            self._unclaimed.add(digest, connections, at_ms)

    def expire(self) -> None:
        """Forget what no longer counts."""
        now_ms = self._now_ms()
        self._others.expire(now_ms)
        self._unclaimed.expire(now_ms)


def _ignore(_entries: bytes) -> None:
    """Do nothing: the default of `publish`."""
