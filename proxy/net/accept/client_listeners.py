"""The ports that clients connect to, and all checks of a connection before it is served."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.base.clock import now_ms
from proxy.base.close_reason import CloseReason
from proxy.base.errors import StartError
from proxy.base.host_port import HostPort
from proxy.config.sections.server_names import ServerNames, UnknownServerNameError
from proxy.net.accept.admission import Admission, Peer
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.accept.client_hellos import ClientHellos
from proxy.net.accept.first_bytes import Arrival
from proxy.net.accept.listener import Acceptor
from proxy.net.accept.proxy_headers import ProxyHeaders
from proxy.net.sockets import listen
from proxy.net.upstream.routes import Route
from proxy.telemetry import log
from proxy.telemetry.counters import Counters, bump
from quota.connections.ip_connections import IpKey


class AdmittedConnection(NamedTuple):
    """A connection that passed all checks.

    Attributes:
        listener: the listener that accepted it.
        node_id: the broker of its port; None for the bootstrap port.
        arrival: its socket, and the client's address.
        ip_key: the key under which its address is counted.
    """

    listener: BoundListener
    node_id: int | None
    arrival: Arrival
    ip_key: IpKey


class Port(NamedTuple):
    """A port that clients connect to: the name of its listener, its address as it is configured, and what listens there."""

    listener: str
    address: str
    sock: socket.socket


class ClientListeners:
    """Binds ports, accepts, reads PROXY headers and the host names of ClientHellos, and calls the admission.

    Args:
        listeners: the configured listeners.
        header_ms, hello_ms: time limits of a PROXY header and of a ClientHello.
        may_accept: called before each accept.
        serve: receives a connection that passed all checks; it frees the slot with `Admission.left`.

    Attributes:
        on_bound: called with each listener that has a new port.
    """

    def __init__(
        self,
        listeners: Sequence[BoundListener],
        counters: Counters,
        admission: Admission,
        *,
        header_ms: Callable[[], int],
        hello_ms: Callable[[], int],
        may_accept: Callable[[], bool],
        serve: Callable[[AdmittedConnection], None],
    ) -> None:
        self.listeners = listeners
        self.counters = counters
        self.admission = admission
        self._may_accept = may_accept
        self._serve = serve
        self._headers = ProxyHeaders(self, header_ms)
        self._hellos = ClientHellos(self, hello_ms)
        self._accepting = True
        self._suspended = False
        self._inherited: dict[tuple[str, str], socket.socket] = {}
        self.on_bound: Callable[[BoundListener], None] = lambda _listener: None
        for listener in listeners:
            listener.admission = admission.of_listener(
                listener.settings.name, listener.acceptors, functools.partial(self._passed, listener)
            )
            listener.route.binds(self.bind_broker)

    @property
    def waiting(self) -> int:
        """Number of connections whose PROXY header or ClientHello has not arrived."""
        return len(self._headers) + len(self._hellos)

    @property
    def bound(self) -> bool:
        """Whether every configured listener is open."""
        return self._accepting and all(None in listener.acceptors for listener in self.listeners)

    # --- ports

    def inherit(self, ports: Sequence[Port]) -> None:
        """Take ports of another process instead of binding the same ones."""
        self._inherited.update({(port.listener, port.address): port.sock for port in ports})

    def drop_inherited(self) -> None:
        """Close the inherited ports that were not taken: this process has none there."""
        while self._inherited:
            self._inherited.popitem()[1].close()

    def ports(self) -> list[Port]:
        """Return all ports that are bound."""
        return [port for listener in self.listeners for port in self.ports_of(listener)]

    def ports_of(self, listener: BoundListener) -> list[Port]:
        """Return those of one listener."""
        return [
            Port(listener.settings.name, str(self._address_of(listener, node_id)), acceptor.sock)
            for node_id, acceptor in listener.acceptors.items()
        ]

    def suspend(self) -> None:
        """Let clients wait in the kernel's queues until `resume`."""
        for listener in self.listeners:
            for acceptor in listener.acceptors.values():
                acceptor.suspend()
        self._suspended = True

    def resume(self) -> None:
        """Accept again."""
        self._suspended = False
        for listener in self.listeners:
            for acceptor in listener.acceptors.values():
                acceptor.resume()

    def open(self) -> None:
        """Bind the bootstrap ports.

        Raises:
            StartError: an address cannot be bound.
        """
        for listener in self.listeners:
            address = listener.settings.address
            try:
                sock = self._listen(listener, address)
            except OSError as error:
                raise StartError(
                    f"listener {listener.settings.name}: {address} cannot be bound: {error.strerror or error}; "
                    "choose another port, or end what listens there"
                ) from error
            acceptor = self._acceptor(listener, sock, None)
            listener.acceptors[None] = acceptor
            listener.bootstrap_port = acceptor.port
            self.on_bound(listener)

    def bind_broker(self, route: Route, node_id: int) -> bool:
        """Bind the port of a broker on every listener of the route; False when one of them cannot be bound."""
        bound = [
            self._bind_at(listener, node_id) for listener in self.listeners if listener.route is route
        ]  # every listener tries, also after a failure
        return all(bound)

    def _bind_at(self, listener: BoundListener, node_id: int) -> bool:
        if node_id in listener.acceptors or listener.names is not None:
            return True
        if not self._accepting:
            return False
        port = listener.settings.broker_port(node_id, listener.bootstrap_port)
        if port is None:
            log.warning("broker_without_port", limit_key=str(node_id), listener=listener.settings.name, node_id=node_id)
            return False
        address = HostPort(listener.settings.address.host, port)
        try:
            sock = self._listen(listener, address)
        except OSError as error:
            problem = f"{address} cannot be bound: {error.strerror or error}"
            log.warning("broker_port_not_bound", limit_key=str(address), listener=listener.settings.name, node_id=node_id, problem=problem)
            return False
        acceptor = listener.acceptors[node_id] = self._acceptor(listener, sock, node_id)
        listener.ports[node_id] = acceptor.port
        self.on_bound(listener)
        log.info("broker_port_bound", listener=listener.settings.name, node_id=node_id, address=str(address))
        return True

    def _listen(self, listener: BoundListener, address: HostPort) -> socket.socket:
        inherited = self._inherited.pop((listener.settings.name, str(address)), None)
        return listen(address.host, address.port) if inherited is None else inherited

    def _address_of(self, listener: BoundListener, node_id: int | None) -> HostPort:
        """The address of a port as it is configured: with port 0 where the system picks one."""
        address = listener.settings.address
        return address if node_id is None else HostPort(address.host, listener.ports[node_id])

    def _acceptor(self, listener: BoundListener, sock: socket.socket, node_id: int | None) -> Acceptor:
        listener_admission = listener.admission
        acceptor = Acceptor(
            sock, lambda client, peer: listener_admission.arrived(node_id, client, peer[:2]), self._may_accept, self._no_descriptors
        )
        listener_admission.joined(acceptor)
        if self._suspended:
            acceptor.suspend()
        return acceptor

    def _no_descriptors(self) -> None:
        self.counters.accepts_exhausted += 1
        log.warning("open_files_exhausted", limit_key="open_files_exhausted", connections=self.admission.quotas.total)

    # --- connections

    def _passed(self, listener: BoundListener, node_id: int | None, sock: socket.socket, peer: Peer) -> None:
        """Read the PROXY header, if one is expected, of a connection that has a slot; `peer` is the address of its socket."""
        balancers = listener.settings.proxy_protocol_from
        arrival = Arrival(sock, peer, listener.settings.name, now_ms())
        if balancers is None or peer[0] not in balancers:
            self._arrived(listener, node_id, arrival)
        else:
            self._headers.read(arrival, functools.partial(self._arrived, listener, node_id))

    def _arrived(self, listener: BoundListener, node_id: int | None, arrival: Arrival) -> None:
        """Read the host name, if needed, of a connection whose client's address is known."""
        if listener.names is None:
            self._admit(listener, node_id, arrival)
        else:
            self._hellos.read(arrival, functools.partial(self._route_by_name, listener, listener.names))

    def _route_by_name(self, listener: BoundListener, names: ServerNames, arrival: Arrival, name: str | None) -> None:
        """Find the broker of the requested host name; None: no name was requested."""
        try:
            node_id = names.node_of(name)
        except UnknownServerNameError as error:
            self._hellos.refuse(arrival, str(error))
            return
        if node_id is None or node_id in listener.route.book.upstream:
            self._admit(listener, node_id, arrival)
        else:
            self._hellos.refuse(arrival, f"broker {node_id} is not known")

    def _admit(self, listener: BoundListener, node_id: int | None, arrival: Arrival) -> None:
        """Check the connection by its address, then serve it."""
        key = listener.admission.admit(node_id, arrival.sock, arrival.peer)
        if key is not None:
            self._serve(AdmittedConnection(listener, node_id, arrival, key))

    def arrival_ended(self, arrival: Arrival, reason: CloseReason, detail: str) -> None:
        """Close, count and log a connection that never had a session; a health check is not logged."""
        arrival.sock.close()
        self.admission.listeners[arrival.listener_name].left_unknown()
        note_end(self.counters, arrival, reason, detail)

    def arrival_crashed(self, arrival: Arrival, error: Exception) -> None:
        """Close a connection without a session after an unexpected exception."""
        refuse_crashed(self.counters, arrival.sock, error)
        self.admission.listeners[arrival.listener_name].left_unknown()

    # --- shutdown

    def close(self, reason: CloseReason) -> None:
        """Stop accepting."""
        self._accepting = False
        self.admission.close(reason)
        self.drop_inherited()
        for listener in self.listeners:
            for acceptor in listener.acceptors.values():
                acceptor.close()
            listener.acceptors.clear()
        self._headers.close(reason)
        self._hellos.close(reason)


def note_end(counters: Counters, arrival: Arrival, reason: CloseReason, detail: str) -> None:
    """Count and log the end of a connection that never had a session; a health check is not logged."""
    bump(counters.closes, reason.value)
    write_log = log.debug if reason is CloseReason.HEALTH_CHECK else log.info
    write_log(
        "connection_closed",
        limit_key=reason.value,
        reason=reason.value,
        detail=detail,
        peer=f"{arrival.peer[0]}:{arrival.peer[1]}",
        listener=arrival.listener_name,
        age_ms=now_ms() - arrival.since_ms,
    )


def refuse_crashed(counters: Counters, sock: socket.socket, error: Exception) -> None:
    """Close a client's socket after an unexpected exception, before it has a session."""
    sock.close()
    counters.internal_errors += 1
    bump(counters.closes, CloseReason.INTERNAL_ERROR.value)
    asyncio.get_running_loop().call_exception_handler({"message": "a client was refused by an internal error", "exception": error})
