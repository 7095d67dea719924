"""The interfaces through which pages read the running proxy; pages never change it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from proxy.telemetry.counters import Counters, Usage, UsageTable
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
    from proxy.enforcement.policy import Standing
    from proxy.enforcement.quota_scope import EnforcedManager, EnforcedMutationManager
    from proxy.enforcement.switches import SwitchMode
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
    """Node id, or HOST:PORT while it is not known."""
    managers: "Mapping[ClientQuotaType, QuotaManager]"


class DataState(Protocol):
    """The data path of a process. All members but `usages` and `counters` are read on the loop's thread."""

    counters: Counters
    usages: UsageTable

    def now_ms(self) -> int:
        """Return the monotonic time that sensors know."""

    def brokers(self) -> Iterable[BrokerQuotas]:
        """Return the managers of every broker met so far, and those of the cluster."""

    def callback(self) -> CallbackStatus:
        """Return the state of the operator's callback."""

    def traffic(self) -> Traffic:
        """Return what passed so far."""

    def connections(self, after: int, count: int) -> Sequence[ConnectionInfo]:
        """Return the open connections with a number above `after` in the order of their numbers, at most `count`; from any thread."""

    def standing(self, principal: "KafkaPrincipal", client_id: str, listener: str, address: str) -> "Standing":
        """Return what declared groups and switches make of a client that comes in at a listener, from an address."""

    def clients(self) -> "Iterable[tuple[KafkaPrincipal, str]]":
        """Return principal and client-id of the open connections; of one with several client-ids each. Principals know their groups."""


class ControlState(Protocol):
    """The state that exists once, whatever the number of workers. All members but `counters` are read on the loop's thread."""

    counters: Counters

    def mode(self) -> str:
        """Return "delay", "mute" or "observe"."""

    def scope(self) -> str:
        """Return "broker" or "cluster"."""

    def now_ms(self) -> int:
        """Return the monotonic time that sensors know."""

    def wall_time_s(self) -> float:
        """Return seconds since the epoch, for labels."""

    def broker_threads(self) -> int | None:
        """Return how many threads serve requests behind one label of `brokers`; None: the operator did not say."""

    def quota_source(self) -> SourceStatus:
        """Return the state of the quota source."""

    def switches(self) -> "Mapping[str, SwitchMode]":
        """Return the switches of enforcement by target, the broadest first."""

    def exempt(self) -> Iterable[str]:
        """Return the principals that no quota applies to."""

    def readiness(self) -> Sequence[ReadinessCheck]:
        """Return the conditions: listeners bound, an upstream answered lately, quota source fresh."""

    def logins(self) -> Sequence[LoginStatus]:
        """Return how it stands with Sluice's own accounts at the brokers; none of them is a condition."""

    def admission(self) -> AdmissionStatus:
        """Return how it stands with the quotas on connections; changes no rate."""

    def busiest_ips(self, count: int) -> Sequence[IpRate]:
        """Return the addresses that open connections fastest, at most `count`; changes no rate."""

    def rates_of(self, ip: str) -> Sequence[IpRate]:
        """Return how fast one address opens connections, at each broker where it is known; changes no rate."""


class ProxyState(DataState, ControlState, Protocol):
    """The state of a single process, as `App` offers it."""
