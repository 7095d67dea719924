"""Connects to brokers: one attempt per client connection, names resolved off the event loop, a deadline for each attempt."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from proxy.base.host_port import HostPort
from proxy.tls.brokers import TlsBrokers
from proxy.tls.transport import tls_words


class UpstreamUnreachableError(Exception):
    """No broker of a list accepted the connection."""


class Connector:
    """Opens connections to brokers. One timer serves all attempts, since a timer for each would slow short connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: TlsBrokers | None = None) -> None:
        self._loop = loop
        self._tls = tls
        self._due_s: dict[asyncio.Task[None], float] = {}  # by the loop's clock; the oldest attempt first
        self._late: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], address: HostPort, timeout_ms: int, task: asyncio.Task[None] | None = None
    ) -> asyncio.Transport:
        """Open one connection to a broker.

        Args:
            factory: makes the protocol.
            address: address of the broker.
            timeout_ms: time limit of the attempt.
            task: the current task, if the caller knows it; looking it up costs short connections measurable time.

        Raises:
            UpstreamUnreachableError: refused, unresolvable or timed out; the message says where and why.
        """
        task = task or cast("asyncio.Task[None]", asyncio.current_task())
        self._due_s[task] = due_s = self._loop.time() + timeout_ms / 1000
        if self._timer is None or due_s < self._timer.when():
            self._arm(due_s)
        try:
            if self._tls is not None:
                return cast("asyncio.Transport", await self._tls.connect(factory(), address, timeout_ms))
            transport, _ = await self._loop.create_connection(factory, address.host, address.port)
            return transport
        except ssl.SSLError as error:
            raise UpstreamUnreachableError(f"{address}: TLS: {tls_words(error)}") from error
        except OSError as error:
            raise UpstreamUnreachableError(f"{address}: {error.strerror or error}") from error
        except asyncio.CancelledError:
            if task in self._late:
                task.uncancel()
                raise UpstreamUnreachableError(f"{address}: no answer within {timeout_ms} ms") from None
            raise
        finally:
            del self._due_s[task]
            self._late.discard(task)

    def close(self) -> None:
        """Cancel the timer of the attempts."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._give_up)

    def _give_up(self) -> None:
        """End the attempts that are due, and set the timer for the next one."""
        self._timer = None
        now_s = self._loop.time()
        for task, due_s in self._due_s.items():
            if due_s <= now_s and task not in self._late:
                self._late.add(task)
                task.cancel()
        next_s = min((due_s for task, due_s in self._due_s.items() if task not in self._late), default=None)
        if next_s is not None:
            self._arm(next_s)


class Bootstrap:
    """The upstream bootstrap addresses; the one that responded last is tried first."""

    def __init__(self, addresses: Sequence[HostPort]) -> None:
        self.addresses = list(addresses)

    def current(self) -> HostPort:
        """The address to try next."""
        return self.addresses[0]

    def failed(self, address: HostPort) -> None:
        """Use the next address first from now on."""
        if len(self.addresses) > 1 and self.addresses[0] == address:
            self.addresses.append(self.addresses.pop(0))
