"""`[listener.tls]` and `[upstream.tls]`: the files, and what they are good for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from proxy.clock import wall_time_s
from proxy.config_read import Place, Reader
from proxy.config_values import read_path, read_reachable_host
from proxy.host_port import HOST_REMEDY
from proxy.server_names import BROKER_REMEDY, NAME_REMEDY, ServerNames, UnknownServerNameError, read_bootstrap_name, read_broker_name
from proxy.tls.credentials import ClientAuth, CredentialsError, TlsFiles, client_context, host_names_of, server_context
from proxy.tls.principal_mapping import SYNTAX, MappingRuleError, PrincipalMapping

if TYPE_CHECKING:
    from proxy.config import Config

KEY_LOG = "SSLKEYLOGFILE"


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
    """The port that clients are told, where a balancer stands before. None: that of the listener."""

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


_SETTING = {"ca": "client_ca"}  # a listener's name for it


def check_tls(listeners: Sequence[tuple[str, Any]], upstreams: Sequence[tuple[str, Any]], place: Place) -> None:
    """Report what does not fit together in the settings for TLS."""
    for key, listener in listeners:
        tls, protocol = listener.tls, listener.protocol
        if listener.sni is not None:
            _check_sni(key, listener, place)
        if tls is None:
            if protocol.endswith("SSL"):
                place.add(f"{key}.protocol", f"{protocol} needs a certificate", f"write the table {key}.tls")
            continue
        if protocol.endswith("PLAINTEXT"):
            secure = protocol.replace("PLAINTEXT", "SSL")
            place.add(f"{key}.protocol", f"{protocol} has no TLS", f'write "{secure}", or leave out {key}.tls')
        if tls.client_auth != "none" and tls.client_ca is None:
            place.add(
                f"{key}.tls.client_ca", f'is missing where client_auth is "{tls.client_auth}"', "name the authorities of your clients"
            )
        if tls.client_auth == "none" and tls.client_ca is not None:
            place.add(f"{key}.tls.client_ca", "has no effect where no client shows a certificate", 'write client_auth = "required"')
    for key, upstream in upstreams:
        tls = upstream.tls
        if tls is not None and (tls.certificate is None) != (tls.key is None):
            missing = "key" if tls.key is None else "certificate"
            place.add(f"{key}.tls.{missing}", "is missing beside the other of the two", "name both, or none")
    if os.environ.get(KEY_LOG) and any(one.tls is not None for _, one in (*upstreams, *listeners)):
        place.add(KEY_LOG, "is set in the environment: it would write down the keys of every connection", "unset it")


def _check_sni(key: str, listener: Any, place: Place) -> None:
    sni = listener.sni
    if listener.tls is None:
        place.add(f"{key}.sni", "names are sent by TLS only", f"write the table {key}.tls")
    for name in ("advertised_host", "first_broker_port", "broker_ports"):
        if getattr(listener, name) is not None:
            place.add(f"{key}.{name}", "has no effect where clients name their broker (sni)", "leave it out")
    with contextlib.suppress(UnknownServerNameError):
        if ServerNames("", sni.broker, others_bootstrap=False).node_of(sni.bootstrap) is not None:
            place.add(f"{key}.sni.bootstrap", f'"{sni.bootstrap}" is a broker\'s name by the template', "write another name")


def advice_on_names(config: Config) -> list[str]:
    """Return which names of a listener's template are not in its certificate, so that clients would not believe them."""
    advice = []
    for listener in config.listeners:
        if listener.sni is None or listener.tls is None:
            continue
        held = host_names_of(listener.tls.certificate)
        about = f"listener {listener.name}: the certificate in {listener.tls.certificate}"
        if not is_covered(listener.sni.bootstrap, held):
            advice.append(f"{about} is not for {listener.sni.bootstrap}, where clients begin")
        if not is_covered(listener.sni.broker, held):
            names = ServerNames("", listener.sni.broker, others_bootstrap=False)
            known = [name for name in held if _is_broker(names, name)]
            which = f"only for {', '.join(known)}" if known else "for no broker"
            advice.append(f"{about} is {which} of {listener.sni.broker}; one with a wildcard is for all")
    return advice


def _is_broker(names: ServerNames, name: str) -> bool:
    try:
        return names.node_of(name) is not None
    except UnknownServerNameError:
        return False


def is_covered(name: str, held: Sequence[str]) -> bool:
    """Say whether one of the names that a certificate holds is `name`; a wildcard stands for one first part. Source: RFC 9525, 6.3."""
    plain = name.lower().removesuffix(".")
    _, _, parent = plain.partition(".")
    return any(one in (plain, f"*.{parent}") for one in held)


def check_files(config: Config, upstreams: Sequence[tuple[str, Any]], place: Place) -> None:
    """Report files that cannot be used."""
    settings = [(f"listener[{at}].tls", listener.tls) for at, listener in enumerate(config.listeners, 1)]
    for key, tls in [*settings, *((f"{key}.tls", upstream.tls) for key, upstream in upstreams)]:
        if tls is None:
            continue
        try:
            tls.context_of(tls.files())
        except CredentialsError as error:
            name = _SETTING.get(error.key, error.key) if isinstance(tls, ListenerTls) else error.key
            place.add(f"{key}.{name}", error.problem, error.remedy)
