"""`[quota_admin]`, `[audit]` and `[admin]`: who may read and change quotas, the audit log, and the port for operators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from proxy.base.clock import wall_time_s
from proxy.base.host_port import HOST_PORT_REMEDY, HostPort
from proxy.base.units import shown
from proxy.config.sections.credentials import CredentialsError, TlsFiles, read_secret, server_context
from proxy.config.toml_reader import Reader
from proxy.config.values import NAME_REMEDY, read_listen, read_name, read_path

Authority = Literal["nobody", "list", "broker"]
MetricsNames = Literal["local", "all"]

PRINCIPALS_MAX: Final = 1_000
PRINCIPAL_REMEDY: Final = "a principal such as User:alice"
TOKEN_BYTES_MIN: Final = 16
_TOKEN: Final = re.compile(rb"[\x21-\x7e]{16,4096}")


def read_principal(value: object) -> str:
    """Return a principal, which is compared exactly."""
    if not isinstance(value, str) or not all(value.partition(":")[::2]) or value != value.strip() or not value.isprintable():
        raise ValueError(f"{shown(value)} is not a principal")
    if value.partition(":")[2] == "*":
        raise ValueError(f"{shown(value)} is not a principal: principals are compared character by character")
    if value.partition(":")[2].startswith("__unknown__"):
        raise ValueError(f"{shown(value)} stands for clients without a known user, which are never authorized")
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
    """Who is authorized: no client; the listed principals; the principals that the broker lets alter configurations."""
    principals: _Principals = ()
    """Principals that may change quotas, and read them."""
    super_principals: _Principals = ()
    """Principals that may also change quotas that apply to themselves."""
    describe_principals: _Principals = ()
    """Principals that may only read quotas."""
    describe_self: bool = False
    """Whether authenticated users may read the quotas that can apply to themselves."""
    deny_self: bool = True
    """Only super principals may change the quota of their own user, or the default quota that applies to them."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The log of changes of quotas."""

    file: Annotated[Path | None, Reader(read_path, "the path of a file")] = None
    """None: the last lines are kept in memory."""


class AdminToken(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token of the admin port."""

    name: Annotated[str, Reader(read_name, NAME_REMEDY)]
    """The holder's name in the audit log: Token:NAME."""
    file: Annotated[Path, Reader(read_path, "the path of a file with only the token in it")]
    role: Literal["read", "write"] = "read"

    def secret(self) -> bytes:
        """Return the token.

        Raises:
            CredentialsError: it is missing, readable by others or not a token.
        """
        token = read_secret("file", self.file)
        if _TOKEN.fullmatch(token) is None:
            problem = f"{self.file} does not contain a token: {TOKEN_BYTES_MIN} to 4096 visible characters of ASCII on one line"
            raise CredentialsError("file", problem, "make one with: openssl rand -hex 32")
        return token


class AdminTls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS of the admin port."""

    certificate: _Pem
    """Followed by the intermediate certificates."""
    key: _Pem
    key_password_file: _File = None

    def files(self) -> TlsFiles:
        """The files of the context."""
        return TlsFiles(self.certificate, self.key, self.key_password_file)

    def context_of(self, files: TlsFiles) -> Any:
        """Return the context; raises `CredentialsError`."""
        return server_context(files, "none", wall_time_s())


class Admin(msgspec.Struct, frozen=True, kw_only=True):
    """The port for operators: metrics, health, quotas and their administration."""

    address: Annotated[HostPort | None, Reader(read_listen, HOST_PORT_REMEDY)] = None
    tokens: tuple[AdminToken, ...] = ()
    tls: AdminTls | None = None
    """None: plain HTTP."""
    open_quotas: bool = False
    """Whether /quotas, which contains users and client-ids, is shown to other hosts without a token too."""
    metrics_names: MetricsNames = "local"
    """Who sees the names of clients in /metrics: this host and holders of a token, or all who reach the port."""
    ip_series: Annotated[int, msgspec.Meta(ge=0, le=100, description="a whole number from 0 to 100")] = 0
    """Number of addresses with a series of their connection rate."""
    strict_readiness: bool = False
    """Whether /readyz fails while the quotas in force cannot be renewed."""
