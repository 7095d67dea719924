"""TLS delivers a peer's bytes in order, and its end once, however the records are cut and joined."""

import asyncio
import random
import ssl
from pathlib import Path
from typing import Any

import pytest

from proxy.tls.transport import EARLY_BYTES_MAX, TlsTransport
from tests.support.tls.certificates import Authority


class PlainSocket:
    """A transport below TLS that collects the bytes written to it."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    abort = close


class UpperProtocol(asyncio.Protocol):
    """A protocol above TLS that keeps what it gets and may pause after each piece."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self.got: list[bytes] = []
        self.ends = 0
        self.lost: list[Exception | None] = []
        self._dice = dice

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        assert data
        self.got.append(data)
        if self._dice is not None and self._dice.random() < 0.2:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ends += 1
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Peer:
    """A TLS client driven by hand, and the proxy's transport on the other side of it."""

    def __init__(self, folder: Path, version: ssl.TLSVersion) -> None:
        authority = Authority(folder)
        server = authority.issue("server", hosts=("127.0.0.1",))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.certificate, server.key)
        context.num_tickets = 0
        trusting = ssl.create_default_context(cafile=authority.file)
        trusting.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.socket = PlainSocket()
        self.transport = TlsTransport(asyncio.get_running_loop(), lambda one, other: context.wrap_bio(one, other, server_side=True))

    async def shake_hands(self, above: UpperProtocol) -> None:
        """Complete the handshake, until `above` is connected."""
        raw: Any = self.socket
        self.transport.connection_made(raw)
        shaken = asyncio.ensure_future(self.transport.handshake(10_000))
        await asyncio.sleep(0)
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self._pass_on()
                continue
            self._pass_on()
            break
        await shaken
        self.transport.attach(above)

    def _pass_on(self) -> None:
        if self.outgoing.pending:
            self.transport.data_received(self.outgoing.read())
        self.incoming.write(bytes(self.socket.sent))
        self.socket.sent.clear()

    def record(self, plain: bytes) -> bytes:
        """Encrypt the data; more than 16 KiB become several records."""
        self.tls.write(plain)
        return self.outgoing.read()

    def end(self) -> bytes:
        """Return the close_notify record."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])


@VERSIONS
async def test_a_record_that_comes_alone_goes_on_at_once(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """A record that arrives alone is delivered at once in one piece, and the end once."""
    peer, above = Peer(tmp_path, version), UpperProtocol()
    await peer.shake_hands(above)
    for plain in (b"a", b"b" * 300, b"c" * 16_384):
        peer.transport.data_received(peer.record(plain))
        assert above.got.pop() == plain
    peer.transport.data_received(peer.end())
    peer.transport.eof_received()
    assert (above.got, above.ends, above.lost) == ([], 1, [])


@VERSIONS
@pytest.mark.parametrize("seed", range(15))
async def test_cut_and_joined_at_will(seed: int, version: ssl.TLSVersion, tmp_path: Path) -> None:
    """Nothing is lost when pieces end within or behind records and the reader pauses."""
    dice = random.Random(seed)
    peer, above = Peer(tmp_path, version), UpperProtocol(dice)
    await peer.shake_hands(above)
    plain = [dice.randbytes(dice.choice([1, 5, 200, 5_000, 16_384, 40_000])) for _ in range(40)]
    records = [peer.record(one) for one in plain] + [peer.end()]
    while records:
        data = b"".join(records.pop(0) for _ in range(dice.choice([1, 1, 1, 2, 5])) if records)
        cut = dice.choice([len(data), len(data), dice.randint(0, len(data))])
        for piece in (data[:cut], data[cut:]):
            if piece:
                peer.transport.data_received(piece)
        if dice.random() < 0.5:
            peer.transport.resume_reading()
            await asyncio.sleep(0)
    for _ in range(200):
        peer.transport.resume_reading()
        await asyncio.sleep(0)
    assert b"".join(above.got) == b"".join(plain)
    assert (above.ends, above.lost) == (1, [])


@VERSIONS
async def test_a_record_alone_that_does_not_decrypt_is_the_end(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """A record that cannot be decrypted ends the connection."""
    peer, above = Peer(tmp_path, version), UpperProtocol()
    await peer.shake_hands(above)
    spoilt = bytearray(peer.record(b"a" * 100))
    spoilt[-1] ^= 1
    peer.transport.data_received(bytes(spoilt))
    assert above.got == []
    assert [type(error) for error in above.lost] == [ConnectionResetError]


class WaitingQueue:
    """A queue in which no handshake ever starts."""

    def ask(self, _transport: TlsTransport) -> None:
        pass

    def done(self, _transport: TlsTransport) -> None:
        pass


async def test_what_comes_before_a_handshake_has_its_turn_is_little_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer whose handshake waits is read only up to a limit, and `unread_bytes` counts what was read."""
    raw = PlainSocket()
    reads = [True]
    monkeypatch.setattr(raw, "pause_reading", lambda: reads.append(False))
    transport = TlsTransport(asyncio.get_running_loop(), lambda *_: pytest.fail("it has no turn"), WaitingQueue())  # type: ignore[arg-type]
    transport.connection_made(raw)  # type: ignore[arg-type]
    transport.data_received(bytes(EARLY_BYTES_MAX))
    assert (reads[-1], transport.unread_bytes) == (True, EARLY_BYTES_MAX)
    transport.data_received(bytes(1))
    assert (reads[-1], transport.unread_bytes) == (False, EARLY_BYTES_MAX + 1)
    transport.abort()
