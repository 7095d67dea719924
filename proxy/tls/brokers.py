"""TLS with brokers."""

from __future__ import annotations

import asyncio
import ssl

from proxy.base.host_port import HostPort
from proxy.tls.keeper import ContextKeeper
from proxy.tls.transport import TlsTransport


class TlsBrokers:
    """Connects to brokers by TLS.

    Args:
        keeper: provides the context.
        server_name: the name that certificates must have; None: the host that is connected to.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: ContextKeeper, server_name: str | None) -> None:
        self._loop = loop
        self.keeper = keeper
        self._server_name = server_name

    async def connect(self, above: asyncio.Protocol, address: HostPort, timeout_ms: int) -> TlsTransport:
        """Open one connection with the protocol `above` on top.

        Raises:
            OSError: refused, unresolvable, or TLS failed (`ssl.SSLError`, `TimeoutError`).
        """

        def make(incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
            return self.keeper.context.wrap_bio(incoming, outgoing, server_hostname=self.server_name(address))

        _, tls = await self._loop.create_connection(lambda: TlsTransport(self._loop, make), address.host, address.port)
        tls.begin()
        await tls.handshake(timeout_ms)
        tls.attach(above)
        return tls

    def server_name(self, address: HostPort) -> str:
        """Return the host name that the certificate at an address must have."""
        return self._server_name or address.host
