"""Calls of quota managers and tables in one line, as the proxy makes them for a request."""

from quota.connections.ip_connections import IpConnections
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import KafkaPrincipal
from quota.groups.group import max_value_in_window
from quota.manager import ClientQuotaManager
from quota.request_time import PERCENT_PER_NANOSECOND

Manager = ClientQuotaManager | ControllerMutationQuotaManager


def record(manager: Manager, principal: KafkaPrincipal, client_id: str, value: float, now_ms: int) -> int:
    """Count `value` (bytes, percent, mutations) for a client's group and return the throttle time in ms; 0 while not enabled."""
    return manager.group(principal, client_id, now_ms).record(value, now_ms) if manager.enabled else 0


def record_unchecked(manager: Manager, principal: KafkaPrincipal, client_id: str, value: float, now_ms: int) -> None:
    """Count `value` without a check of the bound; a negative one un-records."""
    if manager.enabled:
        manager.group(principal, client_id, now_ms).record_unchecked(value, now_ms)


def record_time(manager: Manager, principal: KafkaPrincipal, client_id: str, handler_ns: int, now_ms: int) -> int:
    """Count handler time and return the throttle time in ms."""
    return record(manager, principal, client_id, handler_ns * PERCENT_PER_NANOSECOND, now_ms)


def record_throttle(manager: Manager, principal: KafkaPrincipal, client_id: str, throttle_ms: int, now_ms: int) -> None:
    """Record an applied delay in the mean throttle time of a client's group."""
    if manager.enabled and throttle_ms > 0:
        manager.group(principal, client_id, now_ms).record_throttle(throttle_ms, now_ms)


def window_max(manager: Manager, principal: KafkaPrincipal, client_id: str, now_ms: int) -> float:
    """Return the capacity of a window of a client's group, by the callback's present limit."""
    if not manager.enabled:
        return max_value_in_window(None, manager.num_samples, manager.window_ms)
    tags = manager.group(principal, client_id, now_ms).tags
    return max_value_in_window(manager.callback.quota_limit(manager.quota_type, tags), manager.num_samples, manager.window_ms)


def update_rate(ips: IpConnections, address: str | None, bound: int | None) -> None:
    """Set the connection rate of one address, or with None of all others; other addresses keep theirs; a bound of None removes it."""
    default, overrides = ips._default_rate, dict(ips._rate_overrides)
    if address is None:
        ips.replace_rates(bound, overrides)
        return
    overrides.pop(address, None)
    ips.replace_rates(default, overrides if bound is None else overrides | {address: bound})
