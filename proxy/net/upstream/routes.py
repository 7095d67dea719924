"""The broker listeners that clients are routed to; each has its own addresses of the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from proxy.config.model import Config
from proxy.config.sections.upstream import Upstream
from proxy.config.sections.upstreams import distinct_upstreams
from proxy.net.upstream.connector import Bootstrap, Connector
from proxy.session.addresses import AddressBook
from proxy.tls.contexts import TlsContexts


class Route:
    """One listener of the brokers.

    Attributes:
        name: `upstream`, or the key of the listener's own section.
        number: 0 is `upstream`.
        bootstrap: its bootstrap addresses.
        connector: opens connections there.
        book: the address of each broker at this listener.
    """

    __slots__ = ("book", "bootstrap", "connector", "name", "number", "upstream")

    def __init__(self, name: str, number: int, upstream: Upstream, loop: asyncio.AbstractEventLoop, tls: TlsContexts) -> None:
        self.name = name
        self.number = number
        self.upstream = upstream
        self.bootstrap = Bootstrap(upstream.bootstrap)
        self.connector = Connector(loop, tls.brokers.get(upstream))
        self.book = AddressBook(_never_binds)

    def binds(self, bind: Callable[[Route, int], bool]) -> None:
        """Set the function that opens the ports of brokers found on this route."""
        self.book = AddressBook(lambda node_id: bind(self, node_id))


class Routes:
    """All routes.

    Attributes:
        main: the route of `[upstream]`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, config: Config, tls: TlsContexts) -> None:
        upstreams = distinct_upstreams(config)
        routes = {upstream: Route(name, number, upstream, loop, tls) for number, (upstream, name) in enumerate(upstreams.items())}
        self.main = routes[config.upstream]
        self._all = list(routes.values())
        self._of_listener = {listener.name: routes[listener.upstream or config.upstream] for listener in config.listeners}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._all)

    @property
    def addresses(self) -> list[tuple[int, int, str, int]]:
        """The known addresses of brokers: number of the route, node id, host and port."""
        return [(route.number, node_id, *address) for route in self._all for node_id, address in route.book.upstream.items()]

    def of(self, listener: str) -> Route:
        """Return the route of a listener's clients."""
        return self._of_listener[listener]

    def close(self) -> None:
        """Cancel the timers of connection attempts."""
        for route in self._all:
            route.connector.close()


def _never_binds(_node_id: int) -> bool:
    return False
