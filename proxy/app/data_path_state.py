"""A read-only view of the data path: connections, counters, rates of quotas."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from proxy.base import clock
from proxy.enforcement.policy import PolicyResult
from proxy.enforcement.quota_scopes import CLUSTER, QuotaScopes
from proxy.net.connection import Connection
from proxy.net.gateway import Gateway
from proxy.observe.state import BrokerQuotas
from proxy.telemetry.status import CallbackStatus, ConnectionInfo, Traffic
from quota.entity import ClientQuotaType, KafkaPrincipal


class DataPathState:
    """The `DataState` of a gateway."""

    def __init__(self, gateway: Gateway, scopes: QuotaScopes) -> None:
        self._gateway = gateway
        self._scopes = scopes
        self.counters = gateway.counters
        self.usages = gateway.usages

    def now_ms(self) -> int:
        """The monotonic time of sensors, in ms."""
        return clock.now_ms()

    def brokers(self) -> Iterable[BrokerQuotas]:
        """The managers of every scope so far; those of controller mutations belong to the cluster."""
        for scope in self._scopes.all():
            managers = {ClientQuotaType.PRODUCE: scope.produce, ClientQuotaType.FETCH: scope.fetch, ClientQuotaType.REQUEST: scope.request}
            yield BrokerQuotas(scope.label, managers)
        yield BrokerQuotas(CLUSTER, {ClientQuotaType.CONTROLLER_MUTATION: self._scopes.mutation})

    def callback(self) -> CallbackStatus:
        """The state of the operator's callback."""
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

    def traffic(self) -> Traffic:
        """The traffic so far, of ended and of open connections."""
        counted = self.counters
        requests, responses = counted.requests, counted.responses
        from_clients, from_brokers = counted.bytes_from_clients, counted.bytes_from_brokers
        for connection in self._gateway.connections:
            requests += connection.session.requests.frames
            responses += connection.session.responses.answers
            from_clients += connection.client.bytes_in
            from_brokers += connection.broker.bytes_in
        return Traffic(requests, responses, from_clients, from_brokers, self._gateway.handler_times.elapsed_ns)

    def policy_result(self, principal: KafkaPrincipal, client_id: str, listener: str, address: str) -> PolicyResult:
        """Return the declared groups and switches that apply to a client."""
        return self._gateway.policy.policy_result(principal, client_id, listener, address)

    def clients(self) -> Iterable[tuple[KafkaPrincipal, str]]:
        """The connected clients."""
        for connection in list(self._gateway.connections):
            principal = connection.session.principal
            if principal is not None:
                for client_id in connection.session.client_ids:
                    yield connection.session.member(client_id) or principal, client_id

    def connections(self, after: int, count: int) -> Sequence[ConnectionInfo]:
        """Return open connections in the order of their numbers. Any thread may call it: each value read is consistent."""
        now = clock.now_ms()
        behind = (connection for connection in list(self._gateway.connections) if connection.session.number > after)
        return [_about(connection, now) for connection in heapq.nsmallest(count, behind, key=lambda one: one.session.number)]


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
        session.throttle.throttled_until_ms,
        session.number,
        connection.departure is not None,
    )
