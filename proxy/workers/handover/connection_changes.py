"""Changes of the numbers of open connections that one process reports to another, added up for each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping

from proxy.workers.handover.channel import Channel
from proxy.workers.handover.messages import ConnectionsChanged
from proxy.workers.handover.parts import OTHERS_MAX, cut
from quota.connections.ip_connections import IpKey
from quota.entity import KafkaPrincipal


class ConnectionChanges:
    """The changes that have not been sent yet; a `CountObserver`. Changes that cancel each other are not sent.

    Args:
        listeners, addresses, principals: the numbers of open connections; they are the first changes.
    """

    def __init__(self, listeners: Mapping[str, int], addresses: Mapping[IpKey, int], principals: Mapping[KafkaPrincipal, int]) -> None:
        self._listeners = Counter(listeners)
        self._addresses = Counter(addresses)
        self._principals = Counter(principals)
        self._has_some = asyncio.Event()
        self._has_some.set()

    def slots_changed(self, listener: str, change: int) -> None:
        """Add a change of the slots of a listener."""
        self._listeners[listener] += change
        self._has_some.set()

    def address_changed(self, key: IpKey, change: int) -> None:
        """Add a change of the connections of an address."""
        self._addresses[key] += change
        self._has_some.set()

    def principal_changed(self, principal: KafkaPrincipal, change: int) -> None:
        """Add a change of the connections of a principal."""
        self._principals[principal] += change
        self._has_some.set()

    def take(self) -> list[ConnectionsChanged]:
        """Return the changes in messages that fit a socket, and forget them."""
        return list(self._taken())

    def _taken(self) -> Iterator[ConnectionsChanged]:
        listeners = [(name, change) for name, change in self._listeners.items() if change]
        addresses = [(table, address, change) for (table, address), change in self._addresses.items() if change]
        principals = [(one.type, one.name, change) for one, change in self._principals.items() if change]
        for changes in (self._listeners, self._addresses, self._principals):
            changes.clear()
        self._has_some.clear()
        yield from (ConnectionsChanged(listeners=list(some)) for some in cut(listeners, OTHERS_MAX))
        yield from (ConnectionsChanged(addresses=list(some)) for some in cut(addresses, OTHERS_MAX))
        yield from (ConnectionsChanged(principals=list(some)) for some in cut(principals, OTHERS_MAX))

    async def send_all(self, channel: Channel) -> None:
        """Send the changes of each turn of the event loop, until this process ends.

        Raises:
            ChannelClosed: the other process has ended.
        """
        while True:
            await self._has_some.wait()
            for message in self.take():
                await channel.send(message)
