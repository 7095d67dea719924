"""A TLS client on top of a scripted one; the test controls each step of the handshake and of the close."""

import contextlib
import ssl

from tests.support.scripted.scripted_client import ScriptedClient


class ScriptedTls:
    """TLS in memory on top of a scripted client, which a test may also use directly."""

    def __init__(self, client: ScriptedClient, context: ssl.SSLContext, name: str) -> None:
        self.client = client
        self._come, self._go = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._come, self._go, server_hostname=name)

    def next_words(self) -> bytes:
        """Advance the handshake by one step; return the bytes to send. b"": it is complete."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._go.read()

    async def shake_hands(self) -> None:
        """Complete the handshake."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send()
                self._come.write(await self.client.read_some())
            else:
                await self._send()
                return

    async def send(self, data: bytes) -> None:
        """Encrypt and send bytes."""
        self._tls.write(data)
        await self._send()

    async def read_frame(self) -> bytes:
        """Read the next answer, length included."""
        length = await self._read_exactly(4)
        return length + await self._read_exactly(int.from_bytes(length))

    async def ask(self, frame: bytes) -> bytes:
        """Send a request, return the answer."""
        await self.send(frame)
        return await self.read_frame()

    async def notify_close(self) -> None:
        """Send close_notify."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        await self._send()

    async def _send(self) -> None:
        data = self._go.read()
        if data:
            await self.client.send(data)

    async def _read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                data += self._tls.read(count - len(data))
            except ssl.SSLWantReadError:
                self._come.write(await self.client.read_some())
        return bytes(data)
