"""The interfaces through which pages read the running proxy; pages never change it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from proxy.telemetry.client_usage import Usage, UsageTable
from proxy.telemetry.counters import Counters
from proxy.telemetry.status import (
    AdmissionStatus,
    CallbackStatus,
    ConnectionInfo,
    IpRate,
    LoginStatus,
    ReadinessCheck,
    SourceStatus,
    Traffic,
)

if TYPE_CHECKING:
    from proxy.enforcement.pacing import Pacing
    from proxy.enforcement.policy import PolicyResult
    from proxy.enforcement.quota_scope import EnforcedManager, EnforcedMutationManager
    from proxy.enforcement.switches import SwitchMode
    from proxy.observe.fleet import FleetReport
    from quota.entity import ClientQuotaType, KafkaPrincipal

    QuotaManager = EnforcedManager | EnforcedMutationManager

__all__ = [
    "AdmissionStatus",
    "BrokerQuotas",
    "CallbackStatus",
    "ConnectionInfo",
    "ControlState",
    "Counters",
    "DataState",
    "IpRate",
    "LoginStatus",
    "ProxyState",
    "ReadinessCheck",
    "SourceStatus",
    "Traffic",
    "Usage",
    "UsageTable",
]


class BrokerQuotas(NamedTuple):
    """The managers of one broker, or of all brokers together, whose label is "cluster"."""

    label: str
    """Node id, or HOST:PORT while unknown."""
    managers: "Mapping[ClientQuotaType, QuotaManager]"


class DataState(Protocol):
    """The data path of a process. All members but `usages` and `counters` are read on the event loop's thread."""

    counters: Counters
    usages: UsageTable

    def now_ms(self) -> int:
        """Return the monotonic time of sensors, in ms."""

    def brokers(self) -> Iterable[BrokerQuotas]:
        """Return the managers of every broker so far, and those of the cluster."""

    def callback(self) -> CallbackStatus:
        """Return the state of the operator's callback."""

    def traffic(self) -> Traffic:
        """Return the traffic so far."""

    def connections(self, after: int, count: int) -> Sequence[ConnectionInfo]:
        """Return the open connections with a number above `after` in the order of their numbers, at most `count`; from any thread."""

    def policy_result(self, principal: "KafkaPrincipal", client_id: str, listener: str, address: str) -> "PolicyResult":
        """Return the declared groups and switches that apply to a client of a listener and address."""

    def clients(self) -> "Iterable[tuple[KafkaPrincipal, str]]":
        """Return principal and client-id of the open connections; several pairs for one with several client-ids."""


class ControlState(Protocol):
    """The state that exists once, whatever the number of workers. All members but `counters` are read on the event loop's thread."""

    counters: Counters

    def mode(self) -> str:
        """Return "delay", "mute" or "observe"."""

    def scope(self) -> str:
        """Return "broker" or "cluster"."""

    def now_ms(self) -> int:
        """Return the monotonic time of sensors, in ms."""

    def wall_time_s(self) -> float:
        """Return seconds since the epoch, for display."""

    def broker_threads(self) -> int | None:
        """Return the number of threads that serve requests behind one label of `brokers`; None: not configured."""

    def quota_source(self) -> SourceStatus:
        """Return the state of the quota source."""

    def switches(self) -> "Mapping[str, SwitchMode]":
        """Return the switches of enforcement by target, the broadest first."""

    def pacing(self) -> "Mapping[str, Pacing]":
        """Return how groups are enforced by the store, by target."""

    def exempt(self) -> Iterable[str]:
        """Return the principals without quotas."""

    def readiness(self) -> Sequence[ReadinessCheck]:
        """Return the checks: listeners bound, a broker answered recently, quotas up to date."""

    def logins(self) -> Sequence[LoginStatus]:
        """Return the states of Sluice's own logins at the brokers; readiness depends on none of them."""

    def fleet(self) -> "FleetReport | None":
        """Return the last report of the fleet's hub; None: there is no fleet. Readiness does not depend on it."""

    def admission(self) -> AdmissionStatus:
        """Return the state of the quotas on connections; changes no rate."""

    def busiest_ips(self, count: int) -> Sequence[IpRate]:
        """Return the addresses with the highest rates of connections, at most `count`; changes no rate."""

    def rates_of(self, ip: str) -> Sequence[IpRate]:
        """Return the connection rates of one address, for each broker; changes no rate."""


class ProxyState(DataState, ControlState, Protocol):
    """The state of a single process, implemented by `App`."""
