"""Status values of the parts of the proxy, for pages that show them."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

LoginState = Literal["missing", "unneeded", "untried", "works", "refused", "unreadable"]
"""State of a login of Sluice's own: "missing" is not a fault, "unneeded" means that brokers require none."""


class SourceStatus(NamedTuple):
    """State of the source of quotas."""

    source: str
    """Its kind and place, such as "file:quotas.toml"; "none" without quotas."""
    entries: int
    last_success_s: float
    """Seconds since the epoch when the source was last read and valid; 0 before."""
    last_success_ms: int
    """The same on the monotonic clock."""
    error: str | None
    """Why the last attempt failed and the last good values are kept, or None."""
    rejected: int = 0
    """Values that cannot be read, for which the last good ones are kept."""
    replaced: int = 0
    """Values of 0 and below, which are stored and not enforced."""


class CallbackStatus(NamedTuple):
    """State of the operator's callback; all managers together."""

    class_name: str | None
    errors: int
    error: str | None
    calls: int = 0
    call_ns_total: int = 0
    slow_calls: int = 0
    """Calls that took more than 1 ms."""
    suspended: int = 0
    """Callbacks whose calls are suspended now."""
    suspensions: int = 0
    """How often calls were suspended after too many faults."""


class ReadinessCheck(NamedTuple):
    """One check of whether the proxy can take traffic."""

    name: str
    ok: bool
    detail: str
    required: bool = True
    """Whether it is a condition for taking traffic; without it the proxy is only degraded."""


class LoginStatus(NamedTuple):
    """State of one login of Sluice's own."""

    name: str
    """Its table of the configuration."""
    state: LoginState
    detail: str
    enables: Sequence[str]
    """What requires it."""


class Traffic(NamedTuple):
    """Traffic since the process began, of ended and of open connections."""

    requests: int
    responses: int
    bytes_from_clients: int
    bytes_from_brokers: int
    timed_ns: int
    """Sum of the response times of requests with an estimated request time."""


class ListenerAdmissionStatus(NamedTuple):
    """State of the admission of one listener."""

    listener: str
    connections: int
    """Connections that hold a slot."""
    accept_rate: float
    """Connections per second, without those refused because of their address."""
    throttle_ms: float
    """Mean delay by the rates of process and listener in the last minute; NaN without a delayed connection."""
    ip_throttle_ms: float
    """Mean delay of connections held because of their address; NaN without one."""
    blocked_ratio: float
    """Share of the last 30 to 60 s in which a connection waited and the listener accepted none."""


class IpElsewhere(NamedTuple):
    """An address at the other members of a fleet that shares connections."""

    connections: int
    """Open connections at the members that are heard."""
    recorded: int
    """Connections that other members counted, and that were recorded in the rate of the address here."""


class IpRate(NamedTuple):
    """The rate of connections of an address."""

    ip: str
    """The address, or the IPv6 network that it counts for."""
    broker: str
    """Node id of its port; "bootstrap"; "cluster" with that scope."""
    rate: float
    bound: int
    connections: int
    fleet: IpElsewhere | None = None
    """None: connections are not shared."""

    def row(self) -> dict[str, Any]:
        """Return the row of a page."""
        row = self._asdict()
        if self.fleet is None:
            del row["fleet"]
        else:
            row["fleet"] = self.fleet._asdict()
        return row


class AdmissionStatus(NamedTuple):
    """State of the quotas on connections."""

    broker_accept_rate: float
    listeners: Sequence[ListenerAdmissionStatus]
    held: int
    """Sockets that are held because of the rate of their address."""
    tracked_ips: int
    """Addresses with a rate."""
    forgotten_ips: int
    """Rates dropped because the table was full."""
    ip_series: Sequence[IpRate]
    """The addresses with a series of their own, if configured."""
    failing_ips: int = 0
    """Addresses with recent failed logins."""


class ConnectionInfo(NamedTuple):
    """A summary of a connection, for JSON."""

    peer: str
    listener: str
    broker: str
    principal: str
    client_id: str
    age_ms: int
    requests: int
    in_flight: int
    paused_for: Sequence[str]
    throttled_until_ms: int
    number: int
    """The number of the connection in this process, from 1 in the order of arrival."""
    client_closed: bool = False
    """Whether the client has closed its side; its requests may still wait for a quota."""
