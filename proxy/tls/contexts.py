"""The TLS contexts of a process, for clients and for brokers, with new certificates without a restart."""

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
    """What a configuration asks for.

    Attributes:
        clients: by the name of the listener; listeners without TLS are not there.
        brokers: by what is written of them; those without TLS are not there.
        admin: None without `[admin.tls]`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, config: Config, counters: Counters) -> None:
        """Read all files.

        Raises:
            CredentialsError: one of them cannot be used.
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
        """Every context in use."""
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
        """Take over files that changed; what is wrong with them is logged, and the old ones stay."""
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
        """Look at the files every few seconds."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()


def _keeper(place: str, tls: ListenerTls | UpstreamTls | AdminTls) -> ContextKeeper:
    return ContextKeeper(place, tls.files(), tls.context_of)
