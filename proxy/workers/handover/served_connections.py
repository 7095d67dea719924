"""The connections that a worker serves, and the report of them after the worker's supervisor has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Final

from proxy.session.login.principal_connections import PrincipalConnections
from proxy.workers.handover.channel import Channel, ChannelClosed, connected
from proxy.workers.handover.connection_changes import ConnectionChanges
from proxy.workers.handover.messages import ReportConnections
from quota.connections.ip_connections import IpKey

RETRY_S: Final = 1.0


class ServedConnections:
    """Counts the connections that were passed to this worker and have not ended.

    Args:
        principals: counts the connections of each principal in this worker.
    """

    def __init__(self, principals: PrincipalConnections) -> None:
        self._principals = principals
        self._listeners: Counter[str] = Counter()
        self._addresses: Counter[IpKey] = Counter()
        self._changes: ConnectionChanges | None = None

    def passed(self, listener: str, key: IpKey) -> None:
        """Count a connection that the supervisor has passed."""
        self._change(listener, key, 1)

    def ended(self, listener: str, key: IpKey) -> None:
        """Remove a connection."""
        self._change(listener, key, -1)

    def _change(self, listener: str, key: IpKey, change: int) -> None:
        self._listeners[listener] += change
        self._addresses[key] += change
        if not self._addresses[key]:
            del self._addresses[key]
        if self._changes is not None:
            self._changes.slots_changed(listener, change)
            self._changes.address_changed(key, change)

    async def report_forever(self, socket_path: Path) -> None:
        """Report the connections to the present supervisor of the runtime folder, whichever it is, until cancelled."""
        while True:
            with contextlib.suppress(ChannelClosed, OSError):
                channel = connected(socket_path)
                if channel is not None:
                    await self._report(channel)
            await asyncio.sleep(RETRY_S)

    async def _report(self, channel: Channel) -> None:
        """Report to one supervisor until it ends.

        Raises:
            ChannelClosed: it has ended, or it does not count connections of workers.
        """
        self._observe(changes := ConnectionChanges(self._listeners, self._addresses, self._principals.counts()))
        sending: asyncio.Task[None] | None = None
        try:
            await channel.send(ReportConnections())
            sending = asyncio.ensure_future(changes.send_all(channel))
            await channel.receive()  # the supervisor sends nothing: this ends with the channel
        finally:
            self._observe(None)
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            channel.close()

    def _observe(self, changes: ConnectionChanges | None) -> None:
        self._changes = changes
        self._principals.on_change = None if changes is None else changes.principal_changed
