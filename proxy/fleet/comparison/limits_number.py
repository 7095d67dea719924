"""A number that depends on the limits on connections of a member, so that members notice that theirs differ."""

from __future__ import annotations

from proxy.config.model import Config
from proxy.fleet.comparison.quotas_number import number_of


def limits_number(config: Config) -> int:
    """Return the number of the shared limits, above 0; 0: this member shares no connections. Limits of the process are not compared."""
    if config.fleet is None or not config.fleet.connections:
        return 0
    limits = config.connections
    listeners = sorted((one.name, one.max_connection_creation_rate) for one in config.listeners)
    compared = (
        limits.max_connection_creation_rate,
        limits.max_connections_per_ip,
        sorted(limits.overrides.items()),
        limits.max_connections_per_principal,
        sorted(limits.principal_overrides.items()),
        limits.ipv6_prefix_bits,
        listeners,
    )
    return number_of(compared) | 1
