"""`[quota_admin]`, `[audit]` and `[admin]`: who may read and change quotas, what is written down, and the port for operators."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from proxy.clock import wall_time_s
from proxy.config_problem import Problem
from proxy.config_read import Place, Reader
from proxy.config_values import read_listen, read_name, read_path
from proxy.host_port import HOST_PORT_REMEDY, HostPort
from proxy.tls.credentials import CredentialsError, TlsFiles, read_secret, server_context
from proxy.units import shown
from quota.entity import ANONYMOUS

if TYPE_CHECKING:
    from proxy.config import Config, Listener

Authority = Literal["nobody", "list", "broker"]
MetricsNames = Literal["local", "all"]

PRINCIPALS_MAX: Final = 1_000
PRINCIPAL_REMEDY: Final = "a principal such as User:alice"
TOKEN_BYTES_MIN: Final = 16
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_TOKEN: Final = re.compile(rb"[\x21-\x7e]{16,4096}")


def read_principal(value: object) -> str:
    """Return a principal, which is matched letter by letter."""
    if not isinstance(value, str) or not all(value.partition(":")[::2]) or value != value.strip() or not value.isprintable():
        raise ValueError(f"{shown(value)} is not a principal")
    if value.partition(":")[2] == "*":
        raise ValueError(f"{shown(value)} means nobody in particular: a principal is matched letter by letter")
    if value.partition(":")[2].startswith("__unknown__"):
        raise ValueError(f"{shown(value)} stands for clients whom nobody knows, and those never may")
    return value


def _read_principals(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is not a list of principals")
    if len(value) > PRINCIPALS_MAX:
        raise ValueError(f"names more than {PRINCIPALS_MAX} principals")
    return tuple(dict.fromkeys(read_principal(one) for one in value))


_Principals = Annotated[tuple[str, ...], Reader(_read_principals, 'a list such as ["User:alice"]')]
_File = Annotated[Path | None, Reader(read_path, "the path of a file in PEM")]
_Pem = Annotated[Path, Reader(read_path, "the path of a file in PEM")]


class QuotaAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """Who may read and change quotas by Kafka's APIs."""

    authority: Authority = "nobody"
    """Who says so: nobody may; those listed here may; those may whom the broker lets alter configurations."""
    principals: _Principals = ()
    """Who may change quotas, and read them."""
    super_principals: _Principals = ()
    """Who may change what is for themselves, too."""
    describe_principals: _Principals = ()
    """Who may only read them."""
    describe_self: bool = False
    """Whether users who logged in may read the quotas that can hold for themselves."""
    deny_self: bool = True
    """Nobody may change a quota of their own user, or of the default one that holds for them, but for super principals."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down about changes of quotas."""

    file: Annotated[Path | None, Reader(read_path, "the path of a file")] = None
    """None: the last lines are kept in memory."""


class AdminToken(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token of the admin port."""

    name: Annotated[str, Reader(read_name, "1 to 64 letters, digits, dots, dashes or underscores")]
    """Stands in the audit log for whoever holds it: Token:NAME."""
    file: Annotated[Path, Reader(read_path, "the path of a file that holds nothing but the token")]
    role: Literal["read", "write"] = "read"

    def secret(self) -> bytes:
        """Return the token.

        Raises:
            CredentialsError: it is missing, open to others or no token.
        """
        token = read_secret("file", self.file)
        if _TOKEN.fullmatch(token) is None:
            problem = f"{self.file} does not hold a token: {TOKEN_BYTES_MIN} to 4096 visible characters of ASCII on one line"
            raise CredentialsError("file", problem, "make one with: openssl rand -hex 32")
        return token


class AdminTls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS of the admin port."""

    certificate: _Pem
    """With those between it and its root behind it."""
    key: _Pem
    key_password_file: _File = None

    def files(self) -> TlsFiles:
        """The files behind the context."""
        return TlsFiles(self.certificate, self.key, self.key_password_file)

    def context_of(self, files: TlsFiles) -> Any:
        """Make the context; raises `CredentialsError`."""
        return server_context(files, "none", wall_time_s())


class Admin(msgspec.Struct, frozen=True, kw_only=True):
    """The port for operators: metrics, health, the state of quotas, and changing them."""

    address: Annotated[HostPort | None, Reader(read_listen, HOST_PORT_REMEDY)] = None
    tokens: tuple[AdminToken, ...] = ()
    tls: AdminTls | None = None
    """None: plain HTTP."""
    open_quotas: bool = False
    """Whether /quotas, which names users and client-ids, is shown to other machines without a token too."""
    metrics_names: MetricsNames = "local"
    """To whom /metrics names clients: to this machine and holders of a token, or to all who reach the port."""
    ip_series: Annotated[int, msgspec.Meta(ge=0, le=100, description="a whole number from 0 to 100")] = 0
    """How many addresses have a series with their connection rate."""


def can_change(config: Config) -> bool:
    """Whether there is any way to change quotas through Sluice."""
    return config.quota_admin.authority != "nobody" or any(token.role == "write" for token in config.admin.tokens)


def check_administration(values: dict[str, Any], listeners: Sequence[tuple[str, Listener]], place: Place) -> None:
    """Report what does not fit together in `values`, fields of Config."""
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
        who = "nobody may" if authority == "nobody" else "the broker says who may"
        place.add(f"quota_admin.{name}", f"has no effect where {who}", 'write authority = "list", or leave it out')
    named = quota_admin.principals + quota_admin.super_principals + quota_admin.describe_principals
    if authority == "list" and not named and not quota_admin.describe_self:
        place.add("quota_admin.principals", "is missing: nobody is listed", 'write principals = ["User:NAME"], or authority = "nobody"')


def _check_anonymous(quota_admin: QuotaAdmin, listeners: Sequence[tuple[str, Listener]], place: Place) -> None:
    """Whoever reaches a port without TLS and without a login is ANONYMOUS, and what they send can be changed on the way."""
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
    """Return what is right and could be safer."""
    return [
        f"listener {listener.name}: whoever reaches {listener.address} without a login is {ANONYMOUS} and may change quotas"
        for listener in config.listeners
        if _lets_anonymous_change(config.quota_admin, listener)
    ]


def advice_on_metrics(config: Config) -> list[str]:
    """Return who sees names of clients in /metrics, where the port can be reached from elsewhere."""
    admin = config.admin
    if admin.address is None or admin.address.is_loopback:
        return []
    if admin.metrics_names == "all":
        return [f'admin: whoever reaches {admin.address} sees names of clients in /metrics: metrics_names = "all" says so']
    return [
        f"admin: /metrics names clients on this machine and to holders of a token only: a Prometheus elsewhere that has none sees sums; "
        f'give it a token of [[admin.tokens]] by [admin.tls], or write metrics_names = "all" where whoever reaches {admin.address} may '
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
    """Report files that cannot be used; `file` is the configuration itself, in which it stands who may change quotas."""
    if file is not None and can_change(config) and (mode := file.stat().st_mode) & _WRITABLE_BY_OTHERS:
        place.problems.append(
            Problem(
                str(file), "", f"others may write it (mode {stat.S_IMODE(mode):04o}), and it says who may change quotas", "chmod go-w it"
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


def administration_beside(config: Config, folder: Path) -> Config:
    """Paths in a file begin where the file lies."""
    admin, audit = config.admin, config.audit
    tokens = tuple(msgspec.structs.replace(token, file=folder / token.file) for token in admin.tokens)
    tls = admin.tls
    if tls is not None:
        paths = {name: folder / path for name in tls.__struct_fields__ if isinstance(path := getattr(tls, name), Path)}
        tls = msgspec.structs.replace(tls, **paths)
    if audit.file is not None:
        audit = msgspec.structs.replace(audit, file=folder / audit.file)
    return msgspec.structs.replace(config, admin=msgspec.structs.replace(admin, tokens=tokens, tls=tls), audit=audit)
