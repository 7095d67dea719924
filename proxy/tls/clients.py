"""TLS with the clients of one listener: the handshake, and the principal of a client certificate."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

from proxy.base.close_reason import CloseReason
from proxy.config.sections.credentials import server_name_of
from proxy.config.sections.principal_mapping import PrincipalMapping
from proxy.session.login.identity import TlsPeer
from proxy.tls.distinguished_name import distinguished_name
from proxy.tls.handshakes import HandshakeQueue
from proxy.tls.keeper import ContextKeeper
from proxy.tls.transport import TlsTransport, tls_words

_NOT_TLS: Final = {
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "UNEXPECTED_MESSAGE",
    "RECORD_LAYER_FAILURE",
}


class TlsRefusedError(Exception):
    """The handshake with a client failed; `reason` and the text go into the log."""

    def __init__(self, reason: CloseReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class TlsClients:
    """Performs the handshakes with the clients of one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: HandshakeQueue, keeper: ContextKeeper, mapping: PrincipalMapping) -> None:
        self._loop = loop
        self._queue = queue
        self.keeper = keeper
        self._mapping = mapping

    async def handshake(self, sock: socket.socket, timeout_ms: int, first: bytes = b"") -> tuple[TlsTransport, TlsPeer]:
        """Take over an accepted socket, whose bytes `first` were read already; return its transport after the handshake, and the peer.

        Raises:
            TlsRefusedError: the handshake failed; the socket is closed.
        """
        tls = TlsTransport(self._loop, self._make, self._queue, first)
        try:
            await self._loop.connect_accepted_socket(lambda: tls, sock)
        except OSError as error:
            sock.close()
            raise TlsRefusedError(CloseReason.CLIENT_RESET, str(error)) from error
        try:
            state = await tls.handshake(timeout_ms)
        except TimeoutError as error:
            raise TlsRefusedError(CloseReason.TLS_HANDSHAKE_DEADLINE, str(error)) from error
        except ssl.SSLError as error:
            reason = CloseReason.NOT_TLS if error.reason in _NOT_TLS else CloseReason.TLS_HANDSHAKE
            raise TlsRefusedError(reason, tls_words(error)) from error
        except OSError as error:
            raise TlsRefusedError(CloseReason.CLIENT_CLOSED, str(error)) from error
        return tls, self._peer(tls, state)

    def _make(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        return self.keeper.context.wrap_bio(incoming, outgoing, server_side=True)

    def _peer(self, tls: TlsTransport, state: ssl.SSLObject) -> TlsPeer:
        certificate = state.getpeercert(binary_form=True)
        if certificate is None:
            return TlsPeer(None, None, server_name_of(state))
        from cryptography import x509  # imported only here, since most clients have no certificate

        subject = ""
        try:
            subject = distinguished_name(x509.load_der_x509_certificate(certificate).subject.public_bytes())
            name = self._mapping.name(subject)
        except ValueError as error:
            tls.abort()
            raise TlsRefusedError(CloseReason.NO_PRINCIPAL, str(error)) from error
        if not name:
            tls.close()
            raise TlsRefusedError(CloseReason.NO_PRINCIPAL, f'no rule applies to the subject "{subject}"')
        return TlsPeer(name, certificate, server_name_of(state))
