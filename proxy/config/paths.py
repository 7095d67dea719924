"""Relative paths of a configuration are relative to the folder of its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from proxy.config.model import Config
from proxy.config.sections.tls import UpstreamTls
from proxy.config.sections.upstream import Upstream

_PATHS: Final = ("auth_file", "snapshot")


def resolved(config: Config, folder: Path | None) -> Config:
    """Return the configuration with the paths of certificates and secrets made relative to `folder`, where the file is.

    A protocol with SSL in its name enables TLS: without other settings the system's authorities are trusted.
    """
    listeners = tuple(
        msgspec.structs.replace(listener, tls=beside(listener.tls, folder), upstream=_resolved(listener.upstream, folder))
        for listener in config.listeners
    )
    upstream = _resolved(config.upstream, folder)
    canary, fleet = beside(config.canary, folder), beside(config.fleet, folder)
    return msgspec.structs.replace(config, upstream=upstream, listeners=listeners, canary=canary, fleet=fleet)


def _resolved(upstream: Upstream | None, folder: Path | None) -> Upstream | None:
    if upstream is None:
        return None
    tls = UpstreamTls() if upstream.tls is None and upstream.uses_tls else beside(upstream.tls, folder)
    return msgspec.structs.replace(upstream, tls=tls, credentials=beside(upstream.credentials, folder))


def beside(one: Any, folder: Path | None) -> Any:
    """Return a table with its paths made relative to `folder`."""
    if one is None or folder is None:
        return one
    paths = {name: folder / value for name in one.__struct_fields__ if isinstance(value := getattr(one, name), Path)}
    return msgspec.structs.replace(one, **paths)


def administration_beside(config: Config, folder: Path) -> Config:
    """Return the configuration with the paths of administration made relative to `folder`."""
    admin, audit = config.admin, config.audit
    tokens = tuple(msgspec.structs.replace(token, file=folder / token.file) for token in admin.tokens)
    tls = admin.tls
    if tls is not None:
        paths = {name: folder / path for name in tls.__struct_fields__ if isinstance(path := getattr(tls, name), Path)}
        tls = msgspec.structs.replace(tls, **paths)
    if audit.file is not None:
        audit = msgspec.structs.replace(audit, file=folder / audit.file)
    return msgspec.structs.replace(config, admin=msgspec.structs.replace(admin, tokens=tokens, tls=tls), audit=audit)


def stores_beside(config: Config, folder: Path) -> Config:
    """Return the configuration with the paths of stores made relative to `folder`."""
    quotas = config.quotas
    paths: dict[str, Any] = {name: folder / path for name in _PATHS if isinstance(path := getattr(quotas, name), Path)}
    paths["tls"] = beside(quotas.tls, folder)
    return msgspec.structs.replace(config, quotas=msgspec.structs.replace(quotas, **paths))
