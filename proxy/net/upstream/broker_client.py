"""A connection to a broker for Sluice's own requests, with TLS as configured; never used for a client's bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from proxy.base.host_port import HostPort
from proxy.tls.brokers import TlsBrokers
from sluice.broker_client import BrokerClient

CLIENT_ID: Final = "sluice"


@contextlib.asynccontextmanager
async def own_connection(address: HostPort, tls: TlsBrokers | None) -> AsyncIterator[BrokerClient]:
    """Connect, and close the connection at the end of the block.

    Raises:
        OSError: refused, unresolvable, or TLS failed.
    """
    if tls is None:
        streams = await asyncio.open_connection(address.host, address.port)
    else:
        name = tls.server_name(address)
        streams = await asyncio.open_connection(address.host, address.port, ssl=tls.keeper.context, server_hostname=name)
    connection = BrokerClient(*streams, CLIENT_ID)
    try:
        yield connection
    finally:
        await connection.close()
