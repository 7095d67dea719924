"""One configured listener: its ports, or its one port with a host name for each broker."""

from __future__ import annotations

from proxy.config.model import Listener
from proxy.config.sections.server_names import ServerNames
from proxy.net.accept.admission import ListenerAdmission
from proxy.net.accept.listener import Acceptor
from proxy.net.upstream.routes import Route
from proxy.session.addresses import Address
from proxy.session.rewrite import Rewriter
from proxy.tls.clients import TlsClients


class BoundListener:
    """One configured listener: its bootstrap port and its ports of brokers.

    Attributes:
        route: the broker listener that its clients are connected to.
        names: host names of brokers that share the bootstrap port; None: each broker has a port.
        ports: bound ports of brokers, by node id.
        acceptors: one for each port; empty where another process accepts.
    """

    __slots__ = ("acceptors", "admission", "advertised_host", "bootstrap_port", "names", "ports", "rewriters", "route", "settings", "tls")

    admission: ListenerAdmission

    def __init__(self, listener: Listener, tls: TlsClients | None, route: Route) -> None:
        self.settings = listener
        self.route = route
        self.tls = tls
        self.names: ServerNames | None = None if listener.sni is None else listener.sni.names()
        self.acceptors: dict[int | None, Acceptor] = {}
        self.ports: dict[int, int] = {}
        self.rewriters: dict[tuple[str, bool], Rewriter] = {}  # by advertised host, and whether the topology is known
        self.bootstrap_port = listener.address.port
        own_host = None if listener.address.is_wildcard else listener.address.host
        self.advertised_host = listener.advertised_host or own_host  # None: the local address of the accepted socket
        if listener.sni is not None:
            self.advertised_host = listener.sni.bootstrap

    def client_port(self, node_id: int) -> int | None:
        """Return the port of a broker on this listener; None when it has none."""
        if self.settings.sni is not None:
            return self.settings.sni.advertised_port or self.bootstrap_port
        return self.ports.get(node_id)

    def client_address(self, host: str, node_id: int) -> Address | None:
        """Return the address of a broker for clients that reach Sluice at `host`; None when it has none."""
        port = self.client_port(node_id)
        if port is None:
            return None
        return (host if self.names is None else self.names.name_of(node_id)), port
