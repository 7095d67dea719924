"""What observers may see of the running proxy; nothing here changes anything."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from proxy.base import clock
from proxy.config.model import Config
from proxy.config.sections.upstream import MAIN
from proxy.enforcement.address_tables import table_name
from proxy.enforcement.policy import Standing
from proxy.enforcement.quota_scopes import CLUSTER, QuotaScopes
from proxy.enforcement.switches import SwitchMode
from proxy.net.accept.admission import ListenerAdmission
from proxy.net.accept.client_listeners import ClientListeners
from proxy.net.connection import Connection
from proxy.net.gateway import Gateway
from proxy.net.upstream.own_login import OwnLogin
from proxy.net.upstream.prober import Prober
from proxy.observe.state import BrokerQuotas
from proxy.quota_admin.authorizer_probe import AuthorizerProbe
from proxy.quota_store.followed import FollowedQuotas
from proxy.telemetry.status import (
    AdmissionStatus,
    CallbackStatus,
    ConnectionInfo,
    IpRate,
    ListenerAdmissionStatus,
    LoginState,
    LoginStatus,
    ReadinessCheck,
    SourceStatus,
    Traffic,
)
from quota.entity import ClientQuotaType, KafkaPrincipal

ANSWERED_LATELY_MS = 30_000
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
    "refused": "the brokers do not let it in",
}

IPS_LOOKED_AT_MAX = 1_000
"""To work out a rate takes some microseconds, on the event loop; who opens connections fast is among those that came last."""


class LiveState:
    """The `ProxyState` of a running `App`."""

    def __init__(
        self,
        config: Config,
        gateway: Gateway,
        listeners: ClientListeners,
        scopes: QuotaScopes,
        probers: Mapping[str, Prober],
        quotas: FollowedQuotas,
    ) -> None:
        self.config = config
        self._gateway = gateway
        self._listeners = listeners
        self._admission = listeners.admission
        self._scopes = scopes
        self._probers = probers
        self._quotas = quotas
        self.draining = False
        self.canary: AuthorizerProbe | None = None  # None: the brokers' authority is not tested
        self.counters = gateway.counters
        self.usages = gateway.usages

    def mode(self) -> str:
        """The enforcement mode."""
        return self.config.acting_mode

    def scope(self) -> str:
        """Whether sensors belong to a broker or to the cluster."""
        return self.config.enforcement.scope

    def now_ms(self) -> int:
        """The monotonic time that sensors know."""
        return clock.now_ms()

    def wall_time_s(self) -> float:
        """Seconds since the epoch, for labels."""
        return clock.wall_time_s()

    def broker_threads(self) -> int | None:
        """How many threads a broker has for requests, where the operator said so."""
        return self.config.quotas.broker_threads

    def brokers(self) -> Iterable[BrokerQuotas]:
        """The managers of every scope met so far; those of controller mutations belong to the cluster."""
        for scope in self._scopes.all():
            managers = {ClientQuotaType.PRODUCE: scope.produce, ClientQuotaType.FETCH: scope.fetch, ClientQuotaType.REQUEST: scope.request}
            yield BrokerQuotas(scope.label, managers)
        yield BrokerQuotas(CLUSTER, {ClientQuotaType.CONTROLLER_MUTATION: self._scopes.mutation})

    def quota_source(self) -> SourceStatus:
        """How it stands with the store of quotas."""
        return self._quotas.status

    def switches(self) -> Mapping[str, SwitchMode]:
        """The switches in force."""
        return self._gateway.policy.switches.table

    def exempt(self) -> Iterable[str]:
        """Principals that no quota applies to."""
        return self._gateway.policy.exempt

    def callback(self) -> CallbackStatus:
        """How it stands with the operator's callback."""
        callbacks = self._scopes.callbacks
        errors = sum(callback.errors for callback in callbacks)
        error = next((callback.last_error for callback in callbacks if callback.last_error), None)
        return CallbackStatus(
            self._scopes.callback_name,
            errors,
            error,
            calls=sum(callback.calls for callback in callbacks),
            call_ns_total=sum(callback.call_ns_total for callback in callbacks),
            slow_calls=sum(callback.slow_calls for callback in callbacks),
            suspended=sum(callback.is_open for callback in callbacks),
            suspensions=sum(callback.suspensions for callback in callbacks),
        )

    def readiness(self) -> Sequence[ReadinessCheck]:
        """Whether traffic may come: listeners bound, a broker answered lately, quotas fresh."""
        return [self._listeners_check(), *(_upstream(name, prober) for name, prober in self._probers.items()), self._source()]

    def logins(self) -> Sequence[LoginStatus]:
        """Sluice's own accounts at the brokers; none of them is needed for traffic."""
        own = [_login_status(name, prober.login) for name, prober in self._probers.items() if name == MAIN or prober.login.is_set]
        canary: LoginState = "missing" if self.config.canary is None else "untried" if self.canary is None else self.canary.state
        return [*own, LoginStatus("canary", canary, CANARY_WORDS[canary], CANARY_ENABLES)]

    def traffic(self) -> Traffic:
        """What passed so far: of connections that ended, and of those that live."""
        counted = self.counters
        requests, responses = counted.requests, counted.responses
        from_clients, from_brokers = counted.bytes_from_clients, counted.bytes_from_brokers
        for connection in self._gateway.connections:
            requests += connection.session.requests.frames
            responses += connection.session.responses.answers
            from_clients += connection.client.bytes_in
            from_brokers += connection.broker.bytes_in
        return Traffic(requests, responses, from_clients, from_brokers, self._gateway.handler_times.elapsed_ns)

    def admission(self) -> AdmissionStatus:
        """How it stands with the quotas on connections."""
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
        """The addresses that open connections fastest, among those that came last."""
        if not count:
            return []
        now, ips = clock.now_ms(), self._admission.quotas.ips
        rates = [
            IpRate(key[1], table_name(key[0]), rate.rate(now), rate.bound, ips.counts.get(key, 0))
            for key, rate in islice(ips.latest_rates(), IPS_LOOKED_AT_MAX)
        ]
        return heapq.nlargest(count, rates, key=lambda ip: ip.rate)

    def rates_of(self, ip: str) -> Sequence[IpRate]:
        """How fast one address opens connections, or the network that it counts with."""
        now, ips = clock.now_ms(), self._admission.quotas.ips
        _, counted_as = ips.key_of(0, ip)
        return [
            IpRate(key[1], table_name(key[0]), rate.rate(now), rate.bound, ips.counts.get(key, 0))
            for key, rate in ips.latest_rates()
            if key[1] == counted_as
        ]

    def standing(self, principal: KafkaPrincipal, client_id: str, listener: str, address: str) -> Standing:
        """What declared groups and switches make of a client."""
        return self._gateway.policy.standing(principal, client_id, listener, address)

    def clients(self) -> Iterable[tuple[KafkaPrincipal, str]]:
        """Who is connected."""
        for connection in list(self._gateway.connections):
            principal = connection.session.principal
            if principal is not None:
                for client_id in connection.session.client_ids:
                    yield connection.session.member(client_id) or principal, client_id

    def connections(self, after: int, count: int) -> Sequence[ConnectionInfo]:
        """The open connections in the order of their numbers; from any thread: what is read changes, and is never half there."""
        now = clock.now_ms()
        behind = (connection for connection in list(self._gateway.connections) if connection.session.number > after)
        return [_about(connection, now) for connection in heapq.nsmallest(count, behind, key=lambda one: one.session.number)]

    def _listeners_check(self) -> ReadinessCheck:
        ok = self._listeners.bound and not self.draining
        return ReadinessCheck("listeners", ok, "bound" if ok else "draining" if self.draining else "not bound")

    def _source(self) -> ReadinessCheck:
        status = self.quota_source()
        age_ms = clock.now_ms() - status.last_success_ms
        ok = status.error is None and age_ms <= SOURCE_FRESH_MS
        return ReadinessCheck("quota_source", ok, status.error or f"{status.entries} entries, read {age_ms} ms ago")


def _about(connection: Connection, now_ms: int) -> ConnectionInfo:
    session = connection.session
    return ConnectionInfo(
        f"{connection.peer[0]}:{connection.peer[1]}",
        connection.listener_name,
        str(connection.upstream),
        str(session.principal),
        ",".join(session.client_ids),
        now_ms - connection.accepted_ms,
        session.requests.frames,
        len(session.in_flight),
        connection.client.paused_for + connection.broker.paused_for,
        session.debt.debt_until_ms,
        session.number,
    )


def _upstream(name: str, prober: Prober) -> ReadinessCheck:
    answered_ms = prober.answered_ms
    age_ms = None if answered_ms is None else clock.now_ms() - answered_ms
    ok = age_ms is not None and age_ms <= ANSWERED_LATELY_MS
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
