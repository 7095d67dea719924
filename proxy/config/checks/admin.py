"""Checks of the admin port together with the authorization of quota changes."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from proxy.config.model import Config, Listener
from proxy.config.problem import Problem
from proxy.config.sections.admin import Admin, QuotaAdmin
from proxy.config.sections.credentials import CredentialsError
from proxy.config.toml_reader import Place
from quota.entity import ANONYMOUS

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def can_change(config: Config) -> bool:
    """Whether there is any way to change quotas through Sluice."""
    return config.quota_admin.authority != "nobody" or any(token.role == "write" for token in config.admin.tokens)


def check_administration(values: dict[str, Any], listeners: Sequence[tuple[str, Listener]], place: Place) -> None:
    """Report contradictions in `values`, fields of Config."""
    quota_admin, admin = values.get("quota_admin", QuotaAdmin()), values.get("admin")
    if quota_admin is not None:
        _check_lists(quota_admin, place)
        _check_anonymous(quota_admin, listeners, place)
    if admin is not None:
        _check_admin(admin, place)


def _check_lists(quota_admin: QuotaAdmin, place: Place) -> None:
    authority = quota_admin.authority
    for name in ("principals", "describe_principals", "super_principals"):
        if not getattr(quota_admin, name) or authority == "list" or (authority == "broker" and name == "super_principals"):
            continue
        who = "no client may" if authority == "nobody" else "the broker decides on permissions"
        place.add(f"quota_admin.{name}", f"has no effect where {who}", 'write authority = "list", or leave it out')
    named = quota_admin.principals + quota_admin.super_principals + quota_admin.describe_principals
    if authority == "list" and not named and not quota_admin.describe_self:
        place.add("quota_admin.principals", "is missing: the list is empty", 'write principals = ["User:NAME"], or authority = "nobody"')


def _check_anonymous(quota_admin: QuotaAdmin, listeners: Sequence[tuple[str, Listener]], place: Place) -> None:
    """Report ANONYMOUS as quota admin on an open port: any client without a login is ANONYMOUS, and without TLS bytes can be altered."""
    used = [(key, one) for key, one in listeners if one.insecure_quota_admin]
    exposed = [(key, one) for key, one in listeners if _lets_anonymous_change(quota_admin, one)]
    for key, listener in exposed:
        if listener.tls is None and not listener.insecure_quota_admin:
            place.add(
                f"{key}.address",
                f"{ANONYMOUS} may change quotas, and who reaches {listener.address} without TLS and login is that",
                "take it from quota_admin, listen on loopback, or write insecure_quota_admin = true in the listener",
            )
    for key, listener in used:
        if listener.tls is not None or (key, listener) not in exposed:
            place.add(f"{key}.insecure_quota_admin", f"has no effect: {ANONYMOUS} may change nothing here without it", "leave it out")


def _lets_anonymous_change(quota_admin: QuotaAdmin, listener: Listener) -> bool:
    changing = quota_admin.principals + quota_admin.super_principals
    can_be_anonymous = not listener.requires_login and (listener.tls is None or listener.tls.client_auth != "required")
    return str(ANONYMOUS) in changing and can_be_anonymous and not listener.address.is_loopback


def advice_on_administration(config: Config) -> list[str]:
    """Return advice on settings that are valid and could be safer."""
    return [
        f"listener {listener.name}: a client that reaches {listener.address} without a login is {ANONYMOUS} and may change quotas"
        for listener in config.listeners
        if _lets_anonymous_change(config.quota_admin, listener)
    ]


def advice_on_metrics(config: Config) -> list[str]:
    """Return advice on client names in /metrics, when the port can be reached from other hosts."""
    admin = config.admin
    if admin.address is None or admin.address.is_loopback:
        return []
    if admin.metrics_names == "all":
        return [f'admin: every client that reaches {admin.address} sees names of clients in /metrics: metrics_names = "all" says so']
    return [
        f"admin: /metrics names clients on this machine and to holders of a token only: a Prometheus elsewhere that has none sees sums; "
        f'give it a token of [[admin.tokens]] by [admin.tls], or write metrics_names = "all" where clients that reach {admin.address} may '
        "see users and client-ids"
    ]


def _check_admin(admin: Admin, place: Place) -> None:
    seen: dict[str, int] = {}
    for at, token in enumerate(admin.tokens, 1):
        if token is None:
            continue
        first = seen.setdefault(token.name, at)
        if first != at:
            place.add(f"admin.tokens[{at}].name", f'"{token.name}" is the name of admin.tokens[{first}] too', "write another name")
    for name in ("tokens", "tls"):
        if getattr(admin, name) and admin.address is None:
            place.add(f"admin.{name}", "has no effect without an address", 'write admin.address = "127.0.0.1:9644"')
    if admin.tokens and admin.tls is None and admin.address is not None and not admin.address.is_loopback:
        place.add("admin.tls", "is missing: tokens would cross the network in the clear", "write [admin.tls], or listen on loopback")


def check_admin_files(config: Config, place: Place, file: Path | None = None) -> None:
    """Report files that cannot be used; `file` is the configuration itself, which says who may change quotas."""
    if file is not None and can_change(config) and (mode := file.stat().st_mode) & _WRITABLE_BY_OTHERS:
        place.problems.append(
            Problem(
                str(file), "", f"others may write it (mode {stat.S_IMODE(mode):04o}), and it decides who may change quotas", "chmod go-w it"
            )
        )
    for at, token in enumerate(config.admin.tokens, 1):
        try:
            token.secret()
        except CredentialsError as error:
            place.add(f"admin.tokens[{at}].{error.key}", error.problem, error.remedy)
    tls = config.admin.tls
    if tls is not None:
        try:
            tls.context_of(tls.files())
        except CredentialsError as error:
            place.add(f"admin.tls.{error.key}", error.problem, error.remedy)
