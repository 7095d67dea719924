"""The TLS contexts of a process, for clients and for brokers; new certificates need no restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from proxy.config.model import Config
from proxy.config.sections.admin import AdminTls
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.principal_mapping import PrincipalMapping
from proxy.config.sections.tls import ListenerTls, UpstreamTls
from proxy.config.sections.upstreams import distinct_upstreams
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from proxy.tls.brokers import TlsBrokers
from proxy.tls.clients import TlsClients
from proxy.tls.handshakes import HandshakeQueue
from proxy.tls.keeper import ContextKeeper

REFRESH_S = 5.0


class TlsContexts:
    """The contexts of a configuration.

    Attributes:
        clients: by listener name, without the listeners without TLS.
        brokers: by their settings, without those without TLS.
        admin: None without `[admin.tls]`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, config: Config, counters: Counters) -> None:
        """Read all files.

        Raises:
            CredentialsError: a file cannot be used.
        """
        self._counters = counters
        queue = HandshakeQueue(loop)
        self.clients = {
            listener.name: TlsClients(
                loop, queue, _keeper(f"listener.{listener.name}", listener.tls), PrincipalMapping(listener.tls.principal_mapping_rules)
            )
            for listener in config.listeners
            if listener.tls is not None
        }
        self.brokers = {
            upstream: TlsBrokers(loop, _keeper(name, upstream.tls), upstream.tls.server_name)
            for upstream, name in distinct_upstreams(config).items()
            if upstream.tls is not None
        }
        self.admin = None if config.admin.tls is None else _keeper("admin", config.admin.tls)
        self._note()

    def keepers(self) -> Iterator[ContextKeeper]:
        """Yield every context in use."""
        for clients in self.clients.values():
            yield clients.keeper
        if self.admin is not None:
            yield self.admin
        for brokers in self.brokers.values():
            yield brokers.keeper

    def _note(self) -> None:
        expiries = ((keeper.place, keeper.expires_at_s) for keeper in self.keepers())
        self._counters.certificate_expiries_s = {place: expires_at_s for place, expires_at_s in expiries if expires_at_s is not None}

    async def refresh(self) -> None:
        """Load files that changed; errors are logged, and the old context stays in use."""
        for keeper in self.keepers():
            try:
                is_new = await asyncio.to_thread(keeper.refresh)
            except CredentialsError as error:
                self._counters.certificates_rejected += 1
                log.error("certificate_rejected", place=keeper.place, key=error.key, problem=error.problem, remedy=error.remedy)
            else:
                if is_new:
                    self._note()
                    log.info("certificate_reloaded", place=keeper.place, expires_at_s=keeper.expires_at_s)

    async def refresh_forever(self) -> None:
        """Check the files every few seconds."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()


def _keeper(place: str, tls: ListenerTls | UpstreamTls | AdminTls) -> ContextKeeper:
    return ContextKeeper(place, tls.files(), tls.context_of)
