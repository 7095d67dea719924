"""`[upstream]`, and `[listener.upstream]` for a listener whose clients use another listener of the brokers."""

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
"""The name of the upstream for listeners without their own."""


def _read_upstream_protocol(value: object) -> str:
    protocol = read_protocol(value)
    if protocol == "auto":
        raise ValueError(f"{shown(value)} is not valid")
    return protocol


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, by the bootstrap addresses of one of its listeners."""

    bootstrap: Annotated[tuple[HostPort, ...], Reader(read_bootstrap, 'a list such as ["kafka-1:9092", "kafka-2:9092"]')]
    protocol: Annotated[UpstreamProtocol | None, Reader(_read_upstream_protocol, '"PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"')] = (
        None
    )
    """The protocol of that listener. None: TLS when `tls` is given, and a login when the brokers require one."""
    tls: UpstreamTls | None = None
    """None: connections to brokers without TLS."""
    credentials: Credentials | None = None
    """Sluice's own login, for its own requests; clients log in themselves. None: without a login."""

    @property
    def uses_tls(self) -> bool:
        """Whether connections to brokers use TLS."""
        return self.tls is not None or (self.protocol or "").endswith("SSL")

    @property
    def wants_login(self) -> bool | None:
        """Whether the brokers require a login there; None: not configured."""
        return None if self.protocol is None else self.protocol.startswith("SASL")
