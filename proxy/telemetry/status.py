"""Status values of the parts of the proxy, for the pages that show them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

LoginState = Literal["missing", "unneeded", "untried", "works", "refused", "unreadable"]
"""Of an account of Sluice's own: "missing" is no fault, "unneeded" says that brokers ask for none."""


class SourceStatus(NamedTuple):
    """How it stands with the source of quotas."""

    source: str
    """Its kind and place, such as "file:quotas.toml"; "none" where no quota is set."""
    entries: int
    last_success_s: float
    """Seconds since the epoch when the source was last read and found right; 0 before."""
    last_success_ms: int
    """The same on the monotonic clock."""
    error: str | None
    """Why the last attempt kept the last good values, or None."""
    rejected: int = 0
    """Values that cannot be read, whose last good ones are kept."""
    replaced: int = 0
    """Values of 0 and below, which are not enforced as they are kept."""


class CallbackStatus(NamedTuple):
    """How it stands with the operator's own callback; all managers together."""

    class_name: str | None
    errors: int
    error: str | None
    calls: int = 0
    call_ns_total: int = 0
    slow_calls: int = 0
    """Those that took more than 1 ms."""
    suspended: int = 0
    """Objects of the class that are not asked now."""
    suspensions: int = 0
    """How often one was left alone after too many faults."""


class ReadinessCheck(NamedTuple):
    """One condition for taking traffic."""

    name: str
    ok: bool
    detail: str


class LoginStatus(NamedTuple):
    """How it stands with one account of Sluice's own."""

    name: str
    """The table of the configuration that it stands in."""
    state: LoginState
    detail: str
    enables: Sequence[str]
    """What works with it, or would."""


class Traffic(NamedTuple):
    """What passed since the process began, of connections that ended and of those that live."""

    requests: int
    responses: int
    bytes_from_clients: int
    bytes_from_brokers: int
    timed_ns: int
    """How long answers took whose request time was estimated."""


class ListenerAdmissionStatus(NamedTuple):
    """Who came to a listener, and how long they had to wait."""

    listener: str
    connections: int
    """Those that hold a slot now."""
    accept_rate: float
    """Connections per second; those that were turned away because of their address are taken back."""
    throttle_ms: float
    """Mean of the waits that the rates of process and listener asked for, of the last minute; NaN when no connection waited."""
    ip_throttle_ms: float
    """Mean of the delays of those that were held because of their address; NaN when none was."""
    blocked_ratio: float
    """Share of the last half minute to minute in which a connection waited and the listener accepted none."""


class IpRate(NamedTuple):
    """How fast an address opens connections."""

    ip: str
    """Or the IPv6 network that it counts as."""
    broker: str
    """Node id of the port that it came to; "bootstrap"; "cluster" with that scope."""
    rate: float
    bound: int
    connections: int


class AdmissionStatus(NamedTuple):
    """How it stands with the quotas on connections."""

    broker_accept_rate: float
    listeners: Sequence[ListenerAdmissionStatus]
    held: int
    """Sockets that are kept unread because their address came too fast."""
    tracked_ips: int
    """Addresses with a rate."""
    forgotten_ips: int
    """Rates dropped because there were too many."""
    ip_series: Sequence[IpRate]
    """The addresses that have series of their own, if the operator asks for any."""
    failing_ips: int = 0
    """Addresses whose logins failed of late."""


class ConnectionInfo(NamedTuple):
    """A connection at a glance, for JSON."""

    peer: str
    listener: str
    broker: str
    principal: str
    client_id: str
    age_ms: int
    requests: int
    in_flight: int
    paused_for: Sequence[str]
    debt_until_ms: int
    number: int
    """Of the connection in this process: they are counted as they come, from 1."""
