"""Settings and state shared by all sessions of a process; a reload changes them in place."""

from __future__ import annotations

from protocol.limits import MAX_REQUEST_BYTES
from proxy.enforcement.mode import INT32_MAX, Enforcement
from proxy.enforcement.policy import Policy
from proxy.meter.meter import Meter
from proxy.session.buffers import BufferAccount
from proxy.session.header_cache import HeaderCache
from proxy.session.login.principal_connections import PrincipalConnections
from proxy.session.mutations.known_sizes import KnownSizes
from proxy.session.request_context import RequestContexts
from proxy.telemetry.client_usage import UsageTable
from proxy.telemetry.counters import Counters


class SessionSettings:
    """Settings, accounts, and the caches of parsed data."""

    __slots__ = (
        "answers_quotas",
        "buffers",
        "counters",
        "empty_client_id_is_default",
        "enforcement",
        "first_number",
        "frame_bytes_max",
        "heads_met",
        "known_heads",
        "known_sizes",
        "last_number",
        "meter",
        "number_step",
        "paces",
        "policy",
        "principals",
        "shadows",
        "unknown_apis_pass",
        "usages",
    )

    def __init__(self, enforcement: Enforcement, usages: UsageTable, counters: Counters, policy: Policy | None = None) -> None:
        self.enforcement = enforcement
        self.policy = policy or Policy(enforcement)
        self.usages = usages
        self.counters = counters
        self.buffers = BufferAccount()
        self.empty_client_id_is_default = True
        self.unknown_apis_pass = False
        self.shadows = False
        """Whether the brokers enforce the quotas too, so that their throttle times are compared."""
        self.paces = False
        """Whether groups of bytes or of request time may have schedules."""
        self.answers_quotas = False
        """Whether Sluice answers requests about quotas; otherwise the broker does."""
        self.heads_met = HeaderCache()
        self.known_heads = RequestContexts()
        self.known_sizes = KnownSizes()
        self.meter: Meter | None = None
        self.principals = PrincipalConnections()
        self.first_number = 1
        self.number_step = 1
        """Connections have the numbers first_number, first_number + number_step and so on, so that workers do not use the same numbers."""
        self.last_number = 0
        """Number of the last connection; 0: there was none."""
        self.frame_bytes_max = MAX_REQUEST_BYTES

    def next_number(self) -> int:
        """Return the number of a new connection; after the last one of 31 bits they begin again."""
        number = self.last_number + self.number_step if self.last_number else self.first_number
        self.last_number = number if number <= INT32_MAX else self.first_number
        return self.last_number
