"""A fixture with a certificate: listeners with TLS, and clients that trust them."""

import asyncio
import contextlib
import ssl
import time
from pathlib import Path
from typing import Any

from proxy.base.host_port import HostPort
from proxy.config.model import Listener
from proxy.config.sections.credentials import TlsFiles, client_context
from proxy.config.sections.tls import ListenerSni, ListenerTls
from tests.support.ports import free_bootstrap_port
from tests.support.scripted.scripted_sockets import HOST, guarded
from tests.support.tls.certificates import Authority, Files


class TlsClient:
    """A client with TLS by the standard library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """Send a request; return its answer."""
        self.writer.write(request)
        length = await guarded(self.reader.readexactly(4))
        return length + await guarded(self.reader.readexactly(int.from_bytes(length)))

    async def close(self) -> None:
        """Close with close_notify."""
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await guarded(self.writer.wait_closed())


class ProxyFixture:
    """An authority, a server certificate for loopback and for `names`, clients' certificates."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.issue("server", hosts=(HOST, *names))
        self.alice = self.authority.issue("alice")

    def listener(self, sni: ListenerSni | None = None, **settings: Any) -> Listener:
        """Return a listener with TLS on a free port."""
        tls = ListenerTls(certificate=self.server.certificate, key=self.server.key, **settings)
        return Listener(address=HostPort(HOST, free_bootstrap_port()), name="test", tls=tls, sni=sni)

    def context(self, own: Files | None = None) -> ssl.SSLContext:
        """Return a client's context: its trust and its certificate."""
        files = TlsFiles(own and own.certificate, own and own.key, ca=self.authority.file)
        return client_context(files, verify=True, now_s=time.time())

    async def connect(self, port: int, own: Files | None = None, *, name: str = HOST, source: str = HOST) -> TlsClient:
        """Return a client after its handshake with the host name `name`."""
        dialled = asyncio.open_connection(HOST, port, ssl=self.context(own), server_hostname=name, local_addr=(source, 0))
        return TlsClient(*await guarded(dialled))
