"""Checks of TLS settings that contradict each other, and of their files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from proxy.config.model import Config
from proxy.config.sections.credentials import CredentialsError, host_names_of
from proxy.config.sections.server_names import ServerNames, UnknownServerNameError
from proxy.config.sections.tls import ListenerTls
from proxy.config.toml_reader import Place

KEY_LOG = "SSLKEYLOGFILE"
_SETTING = {"ca": "client_ca"}  # the key of a listener's certificate


def check_tls(listeners: Sequence[tuple[str, Any]], upstreams: Sequence[tuple[str, Any]], place: Place) -> None:
    """Report contradictions in the settings for TLS."""
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
        place.add(KEY_LOG, "is set in the environment: it would log the keys of every connection", "unset it")


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
    """Return the names of a listener's template that are not in its certificate, so that clients would refuse them."""
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
    """Whether `name` matches one of a certificate's names; a wildcard stands for the first label. Source: RFC 9525, 6.3."""
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
