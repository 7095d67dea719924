"""`[upstream]`, and `[listener.upstream]` for a listener whose clients reach another listener of the brokers."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from proxy.base.host_port import HostPort
from proxy.base.units import shown
from proxy.config.sections.login import Credentials
from proxy.config.sections.tls import UpstreamTls
from proxy.config.toml_reader import Reader
from proxy.config.values import read_bootstrap, read_protocol

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
        """Whether brokers ask for a login there; None: not declared."""
        return None if self.protocol is None else self.protocol.startswith("SASL")
