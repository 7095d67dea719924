"""Connecting to brokers: one attempt per client connection, names resolved off the loop, a deadline on everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from proxy.host_port import HostPort


class UpstreamUnreachableError(Exception):
    """No broker of a list took the connection."""


async def connect(factory: Callable[[], asyncio.Protocol], address: HostPort, timeout_ms: int) -> asyncio.Transport:
    """Open one connection to a broker.

    Raises:
        UpstreamUnreachableError: refused, unresolvable or no answer in time; says where and why.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    timed_out = False

    def give_up() -> None:
        nonlocal timed_out
        timed_out = True
        task.cancel()

    timer = loop.call_later(timeout_ms / 1000, give_up)
    try:
        transport, _ = await loop.create_connection(factory, address.host, address.port)
        return transport
    except OSError as error:
        raise UpstreamUnreachableError(f"{address}: {error.strerror or error}") from error
    except asyncio.CancelledError:
        if timed_out:
            task.uncancel()
            raise UpstreamUnreachableError(f"{address}: no answer within {timeout_ms} ms") from None
        raise
    finally:
        timer.cancel()


class Bootstrap:
    """The upstream bootstrap addresses: the one that answered last is asked first."""

    def __init__(self, addresses: Sequence[HostPort]) -> None:
        self.addresses = list(addresses)

    def current(self) -> HostPort:
        """The address to try next."""
        return self.addresses[0]

    def failed(self, address: HostPort) -> None:
        """Ask the next one first from now on."""
        if len(self.addresses) > 1 and self.addresses[0] == address:
            self.addresses.append(self.addresses.pop(0))
