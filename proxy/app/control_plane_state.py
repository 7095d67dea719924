"""A read-only view of the control plane: listeners, admission, the store of quotas, Sluice's own accounts."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from proxy.app.control_plane import ControlPlane
from proxy.base import clock
from proxy.config.model import Config
from proxy.config.sections.upstream import MAIN
from proxy.enforcement.address_tables import table_name
from proxy.enforcement.pacing import Pacing, PacingTable
from proxy.enforcement.switches import SwitchMode
from proxy.net.accept.admission import ListenerAdmission
from proxy.net.upstream.own_login import OwnLogin
from proxy.net.upstream.prober import Prober
from proxy.observe.fleet import FleetReport
from proxy.telemetry.status import (
    AdmissionStatus,
    IpElsewhere,
    IpRate,
    ListenerAdmissionStatus,
    LoginState,
    LoginStatus,
    ReadinessCheck,
    SourceStatus,
)
from quota.connections.connection_rate import ConnectionRate
from quota.connections.ip_connections import IpConnections, IpKey

RECENT_ANSWER_MS = 30_000
SOURCE_FRESH_MS = 60_000

LOGIN_ENABLES = ("early topology", "topic store", "forward mode", "metering topic")
LOGIN_WORDS = {
    "missing": "Sluice has no account of its own: topology is learned from answers that pass through",
    "unneeded": "the brokers ask for no login",
    "untried": "not tried yet",
    "works": "logged in",
}
CANARY_ENABLES = ("quotas altered on the brokers' authority",)
CANARY_WORDS = {
    "missing": "there is no account without rights to test the brokers' authority with",
    "untried": "set",
    "works": "tried",
    "refused": "the brokers refuse its login",
}

IPS_EXAMINED_MAX = 1_000
"""Computing a rate takes some microseconds on the event loop; addresses that connect fast are among the most recent ones."""


class ControlPlaneState:
    """The `ControlState` of a running Sluice.

    Args:
        fleet: returns the last report of the fleet's hub; None: there is no fleet.
    """

    def __init__(self, config: Config, control: ControlPlane, fleet: Callable[[], FleetReport] | None = None) -> None:
        self.config = config
        self.counters = control.counters
        self._control = control
        self._policy = control.policy
        self._listeners = control.client_listeners
        self._admission = control.admission
        self._probers = control.probers
        self._quotas = control.quotas
        self._fleet = fleet
        self.draining = False

    def mode(self) -> str:
        """The enforcement mode."""
        return self.config.acting_mode

    def scope(self) -> str:
        """Whether sensors belong to a broker or to the cluster."""
        return self.config.enforcement.scope

    def now_ms(self) -> int:
        """The monotonic time of sensors, in ms."""
        return clock.now_ms()

    def wall_time_s(self) -> float:
        """Seconds since the epoch, for display."""
        return clock.wall_time_s()

    def broker_threads(self) -> int | None:
        """Number of a broker's request threads, when configured."""
        return self.config.quotas.broker_threads

    def quota_source(self) -> SourceStatus:
        """The state of the store of quotas."""
        return self._quotas.status

    def switches(self) -> Mapping[str, SwitchMode]:
        """The switches in force."""
        return self._policy.switches.table

    def pacing(self) -> Mapping[str, Pacing]:
        """The pacings of the store."""
        return PacingTable(self._quotas.content.pacing).table

    def exempt(self) -> Iterable[str]:
        """Principals without quotas."""
        return self._policy.exempt

    def readiness(self) -> Sequence[ReadinessCheck]:
        """The checks of readiness: listeners bound, a broker answered recently, quotas up to date."""
        return [self._listeners_check(), *(_upstream(name, prober) for name, prober in self._probers.items()), self._source()]

    def logins(self) -> Sequence[LoginStatus]:
        """The states of Sluice's own logins at the brokers; traffic needs none of them."""
        own = [_login_status(name, prober.login) for name, prober in self._probers.items() if name == MAIN or prober.login.is_set]
        probe = self._control.canary
        canary: LoginState = "missing" if self.config.canary is None else "untried" if probe is None else probe.state
        return [*own, LoginStatus("canary", canary, CANARY_WORDS[canary], CANARY_ENABLES)]

    def fleet(self) -> FleetReport | None:
        """The last report of the fleet's hub; None: there is no fleet."""
        return None if self._fleet is None else self._fleet()

    def admission(self) -> AdmissionStatus:
        """The state of the quotas on connections."""
        admission, now = self._admission, clock.now_ms()
        quotas = admission.quotas
        return AdmissionStatus(
            quotas.broker_rate.rate(now),
            [_listener_admission(listener, now) for listener in admission.listeners.values()],
            admission.held,
            len(quotas.ips),
            quotas.ips.forgotten,
            self.busiest_ips(self.config.admin.ip_series),
            len(admission.failed_logins),
        )

    def busiest_ips(self, count: int) -> Sequence[IpRate]:
        """Return the addresses with the highest rate of connections, among the most recent ones."""
        if not count:
            return []
        now, ips = clock.now_ms(), self._admission.quotas.ips
        rates = [_ip_rate(ips, key, rate, now) for key, rate in islice(ips.latest_rates(), IPS_EXAMINED_MAX)]
        return heapq.nlargest(count, rates, key=lambda ip: ip.rate)

    def rates_of(self, ip: str) -> Sequence[IpRate]:
        """Return the connection rates of one address, or of the network that it counts for."""
        now, ips = clock.now_ms(), self._admission.quotas.ips
        _, counted_as = ips.key_of(0, ip)
        return [_ip_rate(ips, key, rate, now) for key, rate in ips.latest_rates() if key[1] == counted_as]

    def _listeners_check(self) -> ReadinessCheck:
        ok = self._listeners.bound and not self.draining
        return ReadinessCheck("listeners", ok, "bound" if ok else "draining" if self.draining else "not bound")

    def _source(self) -> ReadinessCheck:
        """With quotas that were read once it is no condition: a typo would make all proxies of a cluster not ready at once."""
        status = self.quota_source()
        age_ms = clock.now_ms() - status.last_success_ms
        ok = status.error is None and age_ms <= SOURCE_FRESH_MS
        required = self.config.admin.strict_readiness or not status.last_success_s
        return ReadinessCheck("quota_source", ok, status.error or f"{status.entries} entries, read {age_ms} ms ago", required)


def _ip_rate(ips: IpConnections, key: IpKey, rate: ConnectionRate, now_ms: int) -> IpRate:
    fleet = None if ips.elsewhere is None else IpElsewhere(ips.count_elsewhere(key, now_ms), rate.elsewhere_total)
    return IpRate(key[1], table_name(key[0]), rate.rate(now_ms), rate.bound, ips.counts.get(key, 0), fleet)


def _upstream(name: str, prober: Prober) -> ReadinessCheck:
    answered_ms = prober.answered_ms
    age_ms = None if answered_ms is None else clock.now_ms() - answered_ms
    ok = age_ms is not None and age_ms <= RECENT_ANSWER_MS
    detail = "no broker has answered yet" if age_ms is None else f"answered {age_ms} ms ago"
    return ReadinessCheck(name, ok, detail if prober.error is None else f"{detail}; {prober.error}")


def _login_status(name: str, login: OwnLogin) -> LoginStatus:
    enables = LOGIN_ENABLES if name == MAIN else LOGIN_ENABLES[:1]
    return LoginStatus(f"{name}.credentials", login.state, login.problem or LOGIN_WORDS[login.state], enables)


def _listener_admission(listener: ListenerAdmission, now_ms: int) -> ListenerAdmissionStatus:
    quota = listener.quota
    return ListenerAdmissionStatus(
        quota.name,
        quota.connections,
        quota.rate.rate(now_ms),
        quota.throttle_time.peek(now_ms),
        quota.ip_throttle_time.peek(now_ms),
        quota.blocked_ratio(now_ms, listener.blocked_since_ms),
    )
