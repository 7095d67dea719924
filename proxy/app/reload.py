"""Settings that a reload changes without closing connections, and settings that need a restart."""

from __future__ import annotations

import msgspec

from proxy.config.model import Config

FIXED = (
    "upstream",
    "listeners",
    "sidecar",
    "workers",
    "supervised",
    "runtime_dir",
    "admin",
    "audit",
    "broker_configs",
    "metering",
    "fleet",
)
FIXED_QUOTAS = (
    "profile",
    "pacing",
    "paced_burst_ms",
    "window_num",
    "window_size_seconds",
    "controller_window_num",
    "controller_window_size_seconds",
)
FIXED_LIMITS = (
    "upstream_connect_ms",
    "drain_ms",
)


def needs_restart(old: Config, new: Config) -> list[str]:
    """Return the keys whose new values need a restart."""
    changed = [key for key in FIXED if _fixed(old, key) != _fixed(new, key)]
    changed += [f"limits.{key}" for key in FIXED_LIMITS if getattr(old.limits, key) != getattr(new.limits, key)]
    changed += [f"quotas.{key}" for key in FIXED_QUOTAS if getattr(old.quotas, key) != getattr(new.quotas, key)]
    if old.log != new.log:
        changed.append("log")
    if old.paced_groups != new.paced_groups:
        changed.append("group.pacing")
    return changed


def _fixed(config: Config, key: str) -> object:
    """The value of a key, without the parts that a reload can change."""
    if key != "listeners":
        return getattr(config, key)
    return [msgspec.structs.replace(listener, max_connections=None, max_connection_creation_rate=None) for listener in config.listeners]
