"""`[listener.tls]` and `[upstream.tls]`: the files and their use."""

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
    """TLS with the clients of a listener. Files are read again when they change."""

    certificate: _Certificate
    """Followed by the intermediate certificates."""
    key: _Certificate
    key_password_file: _File = None
    client_auth: ClientAuth = "none"
    """Whether clients present a certificate: never, optionally, always."""
    client_ca: _File = None
    """The authorities of client certificates."""
    principal_mapping_rules: Annotated[str, Reader(_read_rules, SYNTAX)] = "DEFAULT"
    """Kafka's ssl.principal.mapping.rules."""

    def files(self) -> TlsFiles:
        """The files of the context."""
        return TlsFiles(self.certificate, self.key, self.key_password_file, self.client_ca)

    def context_of(self, files: TlsFiles) -> Any:
        """Return the context; raises `CredentialsError`."""
        return server_context(files, self.client_auth, wall_time_s())


class ListenerSni(msgspec.Struct, frozen=True, kw_only=True):
    """One port for all brokers: clients select the broker by the host name in their TLS ClientHello."""

    bootstrap: Annotated[str, Reader(read_bootstrap_name, NAME_REMEDY)]
    """The host name for bootstrapping."""
    broker: Annotated[str, Reader(read_broker_name, BROKER_REMEDY)]
    """The host name of each broker, with its node id in place of {node_id}."""
    others: Literal["close", "bootstrap"] = "close"
    """How clients are treated that request another name, or none."""
    advertised_port: Annotated[int, msgspec.Meta(ge=1, le=65_535, description="a port from 1 to 65535")] | None = None
    """The advertised port, behind a load balancer. None: that of the listener."""

    def names(self) -> ServerNames:
        """Return the mapping from host names to brokers."""
        return ServerNames(self.bootstrap, self.broker, others_bootstrap=self.others == "bootstrap")


class UpstreamTls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS with brokers."""

    ca: _File = None
    """The authorities of the brokers' certificates. None: those of the system."""
    certificate: _File = None
    """Sluice's own certificate, for brokers that request one."""
    key: _File = None
    key_password_file: _File = None
    server_name: Annotated[str | None, Reader(read_reachable_host, HOST_REMEDY)] = None
    """The name in the brokers' certificates. None: the host that is connected to."""
    insecure_skip_verify: bool = False
    """Accept any certificate: a host in the network between can then pose as the broker."""

    def files(self) -> TlsFiles:
        """The files of the context."""
        return TlsFiles(self.certificate, self.key, self.key_password_file, self.ca)

    def context_of(self, files: TlsFiles) -> Any:
        """Return the context; raises `CredentialsError`."""
        return client_context(files, verify=not self.insecure_skip_verify, now_s=wall_time_s())
