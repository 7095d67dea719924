"""The state of a proxy for observers, without a proxy: real groups and counters that a test can set."""

import math
from collections.abc import Iterable, Mapping, Sequence

from proxy.enforcement.groups.child_groups import enforced_bucket, enforced_group
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import Enforcement
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.pacing import Pacing
from proxy.enforcement.policy import Policy, PolicyResult
from proxy.enforcement.switches import SwitchMode
from proxy.observe.fleet import FleetReport
from proxy.observe.state import BrokerQuotas, CallbackStatus, ConnectionInfo, LoginStatus, ReadinessCheck, SourceStatus, Traffic
from proxy.telemetry.client_usage import UsageTable
from proxy.telemetry.counters import Counters
from proxy.telemetry.status import AdmissionStatus, IpRate, ListenerAdmissionStatus
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import UNLIMITED, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.group import GroupKey
from quota.limits import QuotaLimits, Rule, RuleKey
from quota.request_time import ClientRequestQuotaManager


class GroupsOnly:
    """The part of a ClientQuotaManager that observers read."""

    def __init__(self, *, custom_callback: bool = False) -> None:
        self.limits: dict[ClientQuotaEntity, float] = {}
        self.custom_callback = custom_callback
        self.enabled = False
        self.groups_overflowed = 0
        self._groups: list[EnforcedGroup] = []

    def add(self, user: str = "", client_id: str = "", bound: float = UNLIMITED, burst_ms: int | None = None) -> EnforcedGroup:
        tags = {"user": user, "client-id": client_id}
        group = EnforcedGroup(tags, bound) if burst_ms is None else PacedGroup(tags, bound, burst_ns=burst_ms * 1_000_000)
        self._groups.append(group)
        return group

    def groups(self) -> list[EnforcedGroup]:
        return self._groups

    def find(self, key: GroupKey) -> EnforcedGroup | None:
        return next((group for group in self._groups if group.key == key), None)

    @property
    def rules(self) -> Mapping[RuleKey, Rule]:
        return QuotaLimits.of(self.limits).rules


class FakeState:
    """A `ProxyState` for tests."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.usages = UsageTable()
        self.produce = GroupsOnly()
        self.fetch = GroupsOnly()
        self.request = ClientRequestQuotaManager(enforced_group)
        self.mutation = ControllerMutationQuotaManager(enforced_bucket)
        self.threads: int | None = None
        self.time_ms = 1_000_000
        self.source = SourceStatus("file:quotas.toml", 3, 1_700_000_000.5, 999_000, None)
        self.callback_status = CallbackStatus(None, 0, None)
        self.policy = Policy(Enforcement())
        self.switch_table: dict[str, SwitchMode] = {}
        self.exempt_principals: list[str] = []
        self.checks = [ReadinessCheck("listeners", True, "2 bound"), ReadinessCheck("upstream", True, "answered 12 ms ago")]
        self.connection_infos: list[ConnectionInfo] = []
        self.connected: list[tuple[KafkaPrincipal, str]] = []
        self.ips = [IpRate("192.0.2.7", "1", 20.0, 20, 3)]
        listener = ListenerAdmissionStatus("default", 4, 2.5, math.nan, 41.5, 0.25)
        self.admission_status = AdmissionStatus(2.5, [listener], 1, 5, 0, self.ips)
        self.fleet_report: FleetReport | None = None

    def mode(self) -> str:
        return "delay"

    def scope(self) -> str:
        return "broker"

    def now_ms(self) -> int:
        return self.time_ms

    def wall_time_s(self) -> float:
        return 1_700_000_000.0

    def broker_threads(self) -> int | None:
        return self.threads

    def brokers(self) -> Iterable[BrokerQuotas]:
        return [
            BrokerQuotas(
                "1",
                {ClientQuotaType.PRODUCE: self.produce, ClientQuotaType.FETCH: self.fetch, ClientQuotaType.REQUEST: self.request},
            ),
            BrokerQuotas("cluster", {ClientQuotaType.CONTROLLER_MUTATION: self.mutation}),
        ]

    def quota_source(self) -> SourceStatus:
        return self.source

    def switches(self) -> Mapping[str, SwitchMode]:
        return self.switch_table

    def pacing(self) -> Mapping[str, Pacing]:
        return {}

    def exempt(self) -> Iterable[str]:
        return self.exempt_principals

    def callback(self) -> CallbackStatus:
        return self.callback_status

    def logins(self) -> Sequence[LoginStatus]:
        return [LoginStatus("upstream.credentials", "missing", "none", ("early topology",))]

    def fleet(self) -> FleetReport | None:
        return self.fleet_report

    def readiness(self) -> Sequence[ReadinessCheck]:
        return self.checks

    def traffic(self) -> Traffic:
        return Traffic(11, 12, 13, 14, 10_000_000_000)

    def admission(self) -> AdmissionStatus:
        return self.admission_status

    def busiest_ips(self, count: int) -> Sequence[IpRate]:
        return self.ips[:count]

    def rates_of(self, ip: str) -> Sequence[IpRate]:
        return [rate for rate in self.ips if rate.ip == ip]

    def policy_result(self, principal: KafkaPrincipal, client_id: str, listener: str, address: str) -> PolicyResult:
        return self.policy.policy_result(principal, client_id, listener, address)

    def clients(self) -> Iterable[tuple[KafkaPrincipal, str]]:
        return iter(self.connected)

    def connections(self, after: int, count: int) -> Sequence[ConnectionInfo]:
        return sorted((info for info in self.connection_infos if info.number > after), key=lambda info: info.number)[:count]


def busy_state() -> FakeState:
    """Return a state in which every metric has a value."""
    state = FakeState()
    state.switch_table["entity:user=ops"] = SwitchMode.OFF
    counted = state.counters
    counted.certificate_expiries_s = {"listener.default": 1.9e9}
    counted.connections_accepted["default"] = 7
    counted.closes["idle"] = 2
    counted.connections_open = 4
    counted.proxy_headers["address"] = 3
    counted.logins["PLAIN", "success"] = 2
    counted.throttled("Produce", 120)
    counted.administration.changes["kafka"] = 2
    counted.administration.denials["http"] = 1
    counted.shadow.compared("Produce", 7, 12)
    counted.latencies.of(0, known=True)[1] += 5
    usage = state.usages.get("alice", "etl")
    usage.own_produce_bytes, usage.own_fetch_bytes = 1_000, 2_000
    usage.request_ns = 2_500_000_000
    usage.requests[0], usage.requests[1] = 5, 6
    usage.throttled("Produce", "client-id=etl", 1_500)
    state.produce.limits[ClientQuotaEntity(None, "etl")] = 1_000.0
    group = state.produce.add(client_id="etl", bound=1_000.0)
    group.record(50_000, state.time_ms)
    state.fetch.add(client_id="etl")
    state.threads = 11
    return state
