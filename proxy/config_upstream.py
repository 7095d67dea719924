"""`[upstream]`, and `[listener.upstream]` for a listener whose clients are led to another listener of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from proxy.config_login import Credentials
from proxy.config_read import Place, Reader
from proxy.config_tls import UpstreamTls
from proxy.config_values import read_bootstrap, read_protocol
from proxy.host_port import HostPort
from proxy.units import shown

if TYPE_CHECKING:
    from proxy.config import Config

UpstreamProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

MAIN: Final = "upstream"
"""Where the brokers are met unless a listener says otherwise."""


def _read_upstream_protocol(value: object) -> str:
    protocol = read_protocol(value)
    if protocol == "auto":
        raise ValueError(f"{shown(value)} is not possible")
    return protocol


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster behind, by one of its listeners: where it is first met."""

    bootstrap: Annotated[tuple[HostPort, ...], Reader(read_bootstrap, 'a list such as ["kafka-1:9092", "kafka-2:9092"]')]
    protocol: Annotated[UpstreamProtocol | None, Reader(_read_upstream_protocol, '"PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"')] = (
        None
    )
    """What the brokers speak there. None: TLS where `tls` is given, and a login where they ask for one."""
    tls: UpstreamTls | None = None
    """None: plain connections to brokers."""
    credentials: Credentials | None = None
    """Sluice's own login, for its own questions; clients log in themselves. None: it does without."""

    @property
    def uses_tls(self) -> bool:
        """Whether brokers are met by TLS."""
        return self.tls is not None or (self.protocol or "").endswith("SSL")

    @property
    def wants_login(self) -> bool | None:
        """Whether brokers ask for a login there; None: nobody said so."""
        return None if self.protocol is None else self.protocol.startswith("SASL")


def upstreams_in(listeners: Iterable[tuple[str, Any]], upstream: Upstream | None) -> list[tuple[str, Upstream]]:
    """Return every upstream that is written down, with its key."""
    own = [(f"{key}.{MAIN}", listener.upstream) for key, listener in listeners if listener.upstream is not None]
    return own if upstream is None else [(MAIN, upstream), *own]


def upstreams_of(config: Config) -> list[tuple[str, Upstream]]:
    """Return every upstream of a configuration, with its key."""
    return upstreams_in(((f"listener[{at}]", listener) for at, listener in enumerate(config.listeners, 1)), config.upstream)


def distinct_upstreams(config: Config) -> dict[Upstream, str]:
    """Return each upstream once, with a name for it: `[upstream]` first."""
    upstreams = {config.upstream: MAIN}
    for listener in config.listeners:
        if listener.upstream is not None:
            upstreams.setdefault(listener.upstream, f"listener.{listener.name}.{MAIN}")
    return upstreams


def check_upstreams(listeners: Sequence[tuple[str, Any]], upstream: Upstream | None, place: Place) -> None:
    """Report what does not fit between what brokers speak and what their clients do."""
    for key, one in upstreams_in(listeners, upstream):
        if one.tls is not None and (one.protocol or "").endswith("PLAINTEXT"):
            secure = (one.protocol or "").replace("PLAINTEXT", "SSL")
            place.add(f"{key}.tls", f"has no effect with {one.protocol}", f'write protocol = "{secure}"')
        if one.credentials is not None and one.wants_login is False:
            place.add(f"{key}.credentials", f"have no effect with {one.protocol}, where nobody logs in", "leave them out")
    for key, listener in listeners:
        led_to = listener.upstream or upstream
        if led_to is None or led_to.wants_login is None or listener.protocol == "auto":
            continue
        if listener.declares_sasl and not led_to.wants_login:
            place.add(
                f"{key}.protocol",
                f"{listener.protocol} has clients log in at brokers that take no login there ({led_to.protocol})",
                f"write the brokers' SASL listener into {key}.upstream, or another protocol",
            )
        if not listener.declares_sasl and led_to.wants_login:
            place.add(
                f"{key}.protocol",
                f"{listener.protocol} has nobody log in, and the brokers want a login there ({led_to.protocol})",
                f"write the brokers' listener without SASL into {key}.upstream, or another protocol",
            )


def advice_on_clear_text(config: Config) -> list[str]:
    """Return which listeners take TLS off what others can read further on."""
    open_ones = [
        (listener.name, MAIN if listener.upstream is None else f"listener.{MAIN}")
        for listener in config.listeners
        if listener.tls is not None and _crosses_in_the_clear(listener.upstream or config.upstream)
    ]
    return [
        f"listener {name}: what clients encrypt goes on to the brokers in the clear; write [{key}.tls] where others can read along"
        for name, key in open_ones
    ]


def _crosses_in_the_clear(upstream: Upstream) -> bool:
    return not upstream.uses_tls and not all(address.is_loopback for address in upstream.bootstrap)


def resolved(config: Config, folder: Path | None) -> Config:
    """Return the configuration with paths of certificates and secrets that begin at `folder`, where the file lies.

    A protocol with SSL in its name is enough to speak TLS: the system's authorities are trusted then.
    """
    listeners = tuple(
        msgspec.structs.replace(listener, tls=beside(listener.tls, folder), upstream=_resolved(listener.upstream, folder))
        for listener in config.listeners
    )
    upstream = _resolved(config.upstream, folder)
    return msgspec.structs.replace(config, upstream=upstream, listeners=listeners, canary=beside(config.canary, folder))


def _resolved(upstream: Upstream | None, folder: Path | None) -> Upstream | None:
    if upstream is None:
        return None
    tls = UpstreamTls() if upstream.tls is None and upstream.uses_tls else beside(upstream.tls, folder)
    return msgspec.structs.replace(upstream, tls=tls, credentials=beside(upstream.credentials, folder))


def beside(one: Any, folder: Path | None) -> Any:
    """Return a table with its paths below `folder`."""
    if one is None or folder is None:
        return one
    paths = {name: folder / value for name in one.__struct_fields__ if isinstance(value := getattr(one, name), Path)}
    return msgspec.structs.replace(one, **paths)
