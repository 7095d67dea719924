"""Builds the settings of each part from the configuration; without state."""

from __future__ import annotations

from collections.abc import Callable

from proxy.app.identities import identities_of
from proxy.config.callback import load_callback_class
from proxy.config.checks.pacing import refusal_of
from proxy.config.model import Config
from proxy.enforcement.groups.group_factory import GroupFactories
from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.factory import ALONE, PacedGroups
from proxy.enforcement.pacing import PacingRules
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaWindows
from proxy.net.accept.admission import Peer
from proxy.net.gateway import GatewaySettings
from proxy.session.login.principal_connections import PrincipalConnections
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.telemetry.counters import Counters
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import DeclaredGroups


def callback_choice(config: Config, file: str) -> CallbackChoice:
    """Return the class that groups clients; `file` is the configuration file, for messages.

    Raises:
        ConfigProblems: the class does not exist.
    """
    if config.callback is None:
        return CallbackChoice()
    return CallbackChoice(load_callback_class(config.callback.class_name, file), config.callback.settings)


def static_defaults(config: Config) -> dict[ClientQuotaType, float]:
    """Return the defaults in bytes per second for clients without a quota, as in old brokers."""
    statics = {ClientQuotaType.PRODUCE: config.quotas.producer_default, ClientQuotaType.FETCH: config.quotas.consumer_default}
    return {quota_type: bound for quota_type, bound in statics.items() if bound is not None}


def quota_windows(config: Config) -> QuotaWindows:
    """Return the number and length of samples."""
    quotas = config.quotas
    return QuotaWindows(
        quotas.window_num,
        quotas.window_size_seconds * 1_000,
        quotas.controller_window_num,
        quotas.controller_window_size_seconds * 1_000,
    )


def group_factories(config: Config, shared: GroupFactories) -> GroupFactories:
    """Return what creates the groups: with schedules where they are paced, or `shared` where nothing can be paced."""
    if refusal_of(config) is not None:
        return shared
    return PacedGroups(
        config.quotas.paced_burst_ms,
        config.paced_groups,
        paces_others=config.quotas.pacing == "paced",
        factories=shared if isinstance(shared, SharedUsage) else ALONE,
    )


def pacing_rules(config: Config) -> PacingRules:
    """Return what may be paced at run time."""
    return PacingRules(refusal_of(config), {group.name: group.parent for group in config.groups})


def gateway_settings(config: Config, counters: Counters, on_login_failed: Callable[[Peer], None]) -> GatewaySettings:
    """Return the settings of the gateway; `on_login_failed` receives the address of each client whose login fails."""
    return GatewaySettings(
        config.listeners,
        config.sidecar,
        config.limits.upstream_connect_ms,
        config.limits.drain_ms,
        config.broker_configs == "redact",
        identities_of(config.listeners, counters, on_login_failed),
    )


def apply_policy(policy: Policy, config: Config, groups: DeclaredGroups) -> None:
    """Enforce verdicts as the configuration says, from the next request on."""
    policy.base.mode = Mode(config.acting_mode)
    policy.base.delay_max_ms = config.enforcement.delay_max_ms
    policy.configured(config.quotas.exempt, groups)


def limit_principals(principals: PrincipalConnections, config: Config) -> None:
    """Limit the connections of each principal."""
    principals.max_connections = config.connections.max_connections_per_principal
    principals.overrides = config.connections.principal_overrides
