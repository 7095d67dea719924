"""`[listener.tls]` and `[upstream.tls]`: the files, and what they are good for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from proxy.base.clock import wall_time_s
from proxy.base.host_port import HOST_REMEDY
from proxy.config.sections.credentials import ClientAuth, TlsFiles, client_context, server_context
from proxy.config.sections.principal_mapping import SYNTAX, MappingRuleError, PrincipalMapping
from proxy.config.sections.server_names import BROKER_REMEDY, NAME_REMEDY, ServerNames, read_bootstrap_name, read_broker_name
from proxy.config.toml_reader import Reader
from proxy.config.values import read_path, read_reachable_host


def _read_rules(value: object) -> str:
    if not isinstance(value, str):
        raise MappingRuleError("is not a text")
    if not PrincipalMapping(value):
        raise MappingRuleError("names no rule")
    return value


_File = Annotated[Path | None, Reader(read_path, "the path of a file in PEM")]
_Certificate = Annotated[Path, Reader(read_path, "the path of a file in PEM")]


class ListenerTls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS towards the clients of a listener. Files are read again when they change."""

    certificate: _Certificate
    """With those between it and its root behind it."""
    key: _Certificate
    key_password_file: _File = None
    client_auth: ClientAuth = "none"
    """Whether clients show a certificate: never, when they have one, always."""
    client_ca: _File = None
    """The authorities that sign those."""
    principal_mapping_rules: Annotated[str, Reader(_read_rules, SYNTAX)] = "DEFAULT"
    """Kafka's ssl.principal.mapping.rules."""

    def files(self) -> TlsFiles:
        """The files behind the context."""
        return TlsFiles(self.certificate, self.key, self.key_password_file, self.client_ca)

    def context_of(self, files: TlsFiles) -> Any:
        """Make the context; raises `CredentialsError`."""
        return server_context(files, self.client_auth, wall_time_s())


class ListenerSni(msgspec.Struct, frozen=True, kw_only=True):
    """One port for all brokers: clients say by the host name in their first message of TLS which one they want."""

    bootstrap: Annotated[str, Reader(read_bootstrap_name, NAME_REMEDY)]
    """The name at which clients begin."""
    broker: Annotated[str, Reader(read_broker_name, BROKER_REMEDY)]
    """The name of each broker, with its number in place of {node_id}."""
    others: Literal["close", "bootstrap"] = "close"
    """What becomes of clients that ask for another name, or for none."""
    advertised_port: Annotated[int, msgspec.Meta(ge=1, le=65_535, description="a port from 1 to 65535")] | None = None
    """The advertised port, where a load balancer stands in front. None: that of the listener."""

    def names(self) -> ServerNames:
        """Which broker a name stands for."""
        return ServerNames(self.bootstrap, self.broker, others_bootstrap=self.others == "bootstrap")


class UpstreamTls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS towards brokers."""

    ca: _File = None
    """The authorities that sign the brokers' certificates. None: those of the system."""
    certificate: _File = None
    """Sluice's own, for brokers that ask for one."""
    key: _File = None
    key_password_file: _File = None
    server_name: Annotated[str | None, Reader(read_reachable_host, HOST_REMEDY)] = None
    """The name in the brokers' certificates. None: the host that is connected to."""
    insecure_skip_verify: bool = False
    """Take any certificate: who can reach the network between can be the broker."""

    def files(self) -> TlsFiles:
        """The files behind the context."""
        return TlsFiles(self.certificate, self.key, self.key_password_file, self.ca)

    def context_of(self, files: TlsFiles) -> Any:
        """Make the context; raises `CredentialsError`."""
        return client_context(files, verify=not self.insecure_skip_verify, now_s=wall_time_s())
