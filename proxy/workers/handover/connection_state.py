"""The connection quotas of a supervisor that is replaced: their state, and the connections that its workers still serve.

The new supervisor continues the rates bit for bit. It counts the connections of the old workers until they end; the old supervisor
reports each end on the channel of the handover, and the end of the channel releases the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from proxy.net.accept.admission import Admission
from proxy.session.login.principal_connections import PrincipalConnections
from proxy.workers.handover.channel import Channel
from proxy.workers.handover.connection_changes import ConnectionChanges
from proxy.workers.handover.handover_listener import Part
from proxy.workers.handover.inherited_connections import InheritedConnections
from proxy.workers.handover.messages import ConnectionsChanged, HandedRates, RateState
from proxy.workers.handover.parts import OTHERS_MAX, cut
from proxy.workers.handover.predecessor import Inherited
from quota.connections.connection_quotas import ConnectionQuotas
from quota.connections.connection_rate import ConnectionRate

SLOTS_MAX: Final = 2_000
"""Maximum number of samples of rates in one message; a sample has up to 27 bytes."""


class ConnectionState:
    """The counts and rates of connections of one supervisor, on both sides of a handover."""

    def __init__(self, admission: Admission, principals: PrincipalConnections) -> None:
        self._admission = admission
        self._principals = principals
        self._changes: ConnectionChanges | None = None
        self._inherited = InheritedConnections(admission.quotas, principals)

    # --- in the supervisor that is replaced

    def hand_over(self, now_ms: int) -> list[Part]:
        """Return the messages with all rates and counts, and note the changes of counts from now on."""
        quotas = self._admission.quotas
        listeners = {listener.name: listener.connections for listener in quotas.listeners.values()}
        self._changes = changes = ConnectionChanges(listeners, quotas.ips.counts, self._principals.counts())
        self._observe(changes)
        rates = list(_rate_states(quotas, now_ms))
        rates_max = max(1, SLOTS_MAX // max((len(one.ring.values) for one in rates), default=1))
        return [
            *((HandedRates(list(some)), ()) for some in cut(rates, rates_max)),
            *((HandedRates(failed_logins=list(some)), ()) for some in cut(self._admission.failed_logins.states(), OTHERS_MAX)),
            *((message, ()) for message in changes.take()),
        ]

    def keep(self) -> None:
        """Note no more changes, since the handover failed."""
        self._observe(None)

    async def report(self, channel: Channel) -> None:
        """Send the changes of counts, until this process ends.

        Raises:
            ChannelClosed: the new supervisor has ended.
        """
        if self._changes is None:
            return  # nothing was handed over
        try:
            await self._changes.send_all(channel)
        finally:
            self._observe(None)

    def _observe(self, changes: ConnectionChanges | None) -> None:
        self._admission.quotas.observe_counts(changes)
        self._principals.on_change = None if changes is None else changes.principal_changed

    # --- in the supervisor that replaces it

    def restore(self, inherited: Inherited) -> list[ConnectionRate]:
        """Continue the rates and counts that were handed over; return the rates. Rates with other windows begin anew."""
        for message in inherited.connections:
            self._inherited.change(message)
        rates: list[ConnectionRate] = []
        for handed in inherited.rates:
            rates += _continued(self._admission.quotas, handed.rates)
            self._admission.failed_logins.continue_from(handed.failed_logins)
        return rates

    async def follow(self, changes: AsyncIterator[ConnectionsChanged]) -> None:
        """Apply the changes of the replaced supervisor's connections; at their end release the connections that are left."""
        await self._follow(changes, self._inherited)

    async def follow_worker(self, changes: AsyncIterator[ConnectionsChanged]) -> None:
        """Count the connections of a worker whose supervisor has ended, until it ends; the first changes are its numbers."""
        await self._follow(changes, InheritedConnections(self._admission.quotas, self._principals))

    async def _follow(self, changes: AsyncIterator[ConnectionsChanged], counted: InheritedConnections) -> None:
        async for message in changes:
            counted.change(message)
            self._admission.slot_freed()
        counted.release()
        self._admission.slot_freed()


def _rate_states(quotas: ConnectionQuotas, now_ms: int) -> Iterator[RateState]:
    """Yield the state of each rate, except those whose samples are all obsolete: they measure as a new rate does."""
    process = (None, None, quotas.broker_rate)
    listeners = ((listener.name, None, listener.rate) for listener in quotas.listeners.values())
    addresses = ((None, key, rate) for key, rate in quotas.ips.rates())
    for listener, address, rate in (process, *listeners, *addresses):
        ring = rate.state
        if ring.values and now_ms - ring.last_ms < ring.num_samples * ring.window_ms:
            yield RateState(listener, address, ring)


def _continued(quotas: ConnectionQuotas, states: Iterable[RateState]) -> Iterator[ConnectionRate]:
    """Continue rates, and yield each; a listener that is not configured any more has none."""
    for state in states:
        ring, own = state.ring, quotas.broker_rate
        if (ring.num_samples, ring.window_ms) != (own.num_samples, own.window_ms):
            continue
        if state.address is not None:
            yield quotas.ips.continue_rate(state.address, ring)
        elif state.listener is None:
            own.continue_from(ring)
            yield own
        elif state.listener in quotas.listeners:
            rate = quotas.listeners[state.listener].rate
            rate.continue_from(ring)
            yield rate
