"""TLS over a plain transport, by `ssl.MemoryBIO`.

It is a transport for the protocol above it, and a protocol for the event loop. Pausing pauses the plain socket and leaves bytes
undecrypted, so that the bytes of a client that is muted and closes are not lost: the event loop's own TLS discards at the end
what it has read ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from proxy.base.direct_writer import DirectWriter
from proxy.tls.handshakes import HandshakeQueue

FEED_BYTES: Final = 64 * 1024
"""Bytes that are decrypted or encrypted at once. A buffer of OpenSSL never shrinks, so larger pieces would cost each connection memory."""
EARLY_BYTES_MAX: Final = 16 * 1024
"""Most bytes kept of a peer whose handshake waits for its turn, or before `attach`; above it, the socket is paused."""
_RECORD_HEAD_BYTES: Final = 5
_PLAIN_BYTES: Final = 256 * 1024
_plain = memoryview(bytearray(_PLAIN_BYTES))  # shared by all transports: its content is copied before the next read


class TlsTransport(asyncio.Protocol):
    """One end of a TLS connection.

    It begins with the handshake, which needs no protocol above it; `attach` adds the protocol. Until then nothing is decrypted.

    Args:
        make_tls: makes the TLS state from an incoming and an outgoing BIO. A server calls it with the first bytes, so that a
            peer that sends none costs little.
        queue: where a step of the handshake with the peer's bytes waits for its turn; None: it does not wait.
        first: the peer's bytes that were read before the transport existed.
    """

    __slots__ = (
        "_above",
        "_closing",
        "_eof",
        "_eof_reported",
        "_incoming",
        "_into_buffers",
        "_loop",
        "_lost",
        "_make_tls",
        "_outgoing",
        "_paused",
        "_queue",
        "_raw",
        "_raw_paused",
        "_shaken",
        "_tls",
        "_tls_pending",
        "_tls_read",
        "_tls_take",
        "_tls_write",
        "_unfed",
        "_writer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make_tls: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        queue: HandshakeQueue | None = None,
        first: bytes = b"",
    ) -> None:
        self._loop = loop
        self._make_tls = make_tls
        self._queue = queue
        self._raw: asyncio.Transport | None = None
        self._writer: DirectWriter | None = None  # after the handshake, all bytes to the plain socket go through it
        self._tls: ssl.SSLObject | None = None
        self._tls_read: Callable[[int, memoryview], int] = _no_tls
        self._tls_take: Callable[[int], bytes] = _no_bytes  # the same, into an object of its own
        self._tls_write: Callable[[bytes | memoryview], int] = _no_tls
        self._tls_pending: Callable[[], int] = _no_tls
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None
        self._above: asyncio.Protocol | None = None
        self._into_buffers = False  # the protocol above has received data
        self._shaken: asyncio.Future[None] | None = loop.create_future()
        self._unfed = [first] if first else []  # read and not yet decrypted
        self._paused = False
        self._raw_paused = False
        self._closing = False
        self._eof = False
        self._eof_reported = False
        self._lost = False

    @property
    def unread_bytes(self) -> int:
        """Number of bytes read from the socket and not decrypted."""
        return sum(map(len, self._unfed)) + (0 if self._incoming is None else self._incoming.pending)

    # --- the handshake

    async def handshake(self, timeout_ms: int) -> ssl.SSLObject:
        """Wait for the end of the handshake; return the TLS state, which describes the peer.

        Raises:
            TimeoutError: it took longer than `timeout_ms`.
            ssl.SSLError, ConnectionError: it failed.
        """
        assert self._shaken is not None
        timer = self._loop.call_later(timeout_ms / 1_000, self._late)
        try:
            await self._shaken
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            timer.cancel()
            self._shaken = None
            if self._queue is not None:
                self._queue.done(self)
        assert self._tls is not None
        return self._tls

    def begin(self) -> None:
        """Begin the handshake, on the client's side."""
        self._make()
        self.continue_handshake()

    def _make(self) -> ssl.SSLObject:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls = self._make_tls(self._incoming, self._outgoing)
        inner: Any = getattr(tls, "_sslobj", tls)  # the object behind `SSLObject`, whose methods cost one call more
        self._tls_read = self._tls_take = inner.read
        self._tls_write, self._tls_pending = inner.write, inner.pending
        return tls

    def _late(self) -> None:
        self._fail(TimeoutError("the handshake was not complete in time"))

    def stalled(self) -> None:
        """End, because too many handshakes are under way and this peer has been silent for a while."""
        self._fail(TimeoutError("silent in its handshake while many others connected"))

    def _wait_for_above(self) -> None:
        """Continue the handshake, now or in its turn; after it, keep a small amount of early data."""
        if self._shaken is not None and not self._shaken.done():
            if self._queue is None:
                self.continue_handshake()
            else:
                self._queue.ask(self)
        if sum(map(len, self._unfed)) > EARLY_BYTES_MAX:
            self._pause_raw()

    def continue_handshake(self) -> None:
        """Take one step of the handshake with what the peer has sent."""
        if self._shaken is None or self._shaken.done() or self._lost:
            return
        try:
            tls = self._tls or self._make()
            assert self._incoming is not None
            while self._unfed:
                self._incoming.write(self._unfed.pop(0))
            self._resume_raw()
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._eof:
                self._fail(ConnectionResetError("closed during the handshake"))
        except (ssl.SSLError, ssl.CertificateError, OSError) as error:
            self._flush()  # the alert with the reason
            self._fail(error)
        else:
            self._flush()
            self._paused = True  # the plain socket is not paused: pausing and resuming would cost more than keeping a few bytes
            self._shaken.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._shaken is not None and not self._shaken.done():
            self._shaken.set_exception(error)
        self.close()

    def attach(self, above: asyncio.Protocol) -> None:
        """Add a protocol after the handshake; it receives first what the peer has sent since."""
        self._above = above
        self._paused = False
        if self._raw is not None:
            self._writer = DirectWriter(self._raw)
        above.connection_made(cast("asyncio.Transport", self))
        if self._lost:
            self._above = None
            self._loop.call_soon(above.connection_lost, None)
        elif not self._paused:
            self._go_on_reading()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The plain connection exists."""
        self._raw = cast("asyncio.Transport", transport)
        if self._unfed:
            self._wait_for_above()

    def data_received(self, data: bytes) -> None:
        """Decrypt the peer's bytes for the protocol above, or continue the handshake."""
        above = self._above
        if above is None or self._paused or self._unfed:
            self._unfed.append(data)
            if above is None:
                self._wait_for_above()
            return
        size = len(data)
        if self._into_buffers or size <= _RECORD_HEAD_BYTES or size != (data[3] << 8 | data[4]) + _RECORD_HEAD_BYTES:
            if size > FEED_BYTES:
                self._unfed.append(data)
                self._take_in()
            else:
                self._decrypt(data)
            return
        # The bytes look like one whole record, as a small request does: one call decrypts it into an object that is passed on.
        incoming = self._incoming
        incoming.write(data)  # type: ignore[union-attr]
        try:
            plain = self._tls_take(size)
        except ssl.SSLWantReadError:  # a message of TLS itself, or the beginning of a larger record
            self._decrypt(b"")
            return
        except ssl.SSLError as error:
            self._broken(error, b"")
            return
        if plain:
            above.data_received(plain)
        else:
            self._eof = True
        if self._eof or incoming.pending or len(plain) == size:  # type: ignore[union-attr]  # it was not one record
            self._decrypt(b"")

    def eof_received(self) -> bool:
        """The peer has closed its side."""
        self._eof = True
        if self._above is not None:
            self._report_eof()
        elif self._shaken is not None and not self._shaken.done() and not self._unfed:
            self._fail(ConnectionResetError("closed during the handshake"))
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The plain connection is closed."""
        self._lost = True
        self.end_direct_writes()
        self._unfed.clear()
        if self._shaken is not None and not self._shaken.done():
            self._shaken.set_exception(exc or ConnectionResetError("closed during the handshake"))
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)

    def pause_writing(self) -> None:
        """The plain socket is full."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """The plain socket accepts bytes again."""
        if self._above is not None:
            self._above.resume_writing()

    # --- bytes

    def _take_in(self) -> None:
        """Decrypt the bytes that are kept, unless reading is paused."""
        while self._unfed and not self._paused and self._above is not None:
            data = self._unfed.pop(0)
            if len(data) > FEED_BYTES:
                self._unfed.insert(0, data[FEED_BYTES:])
                data = data[:FEED_BYTES]
            self._decrypt(data)

    def _decrypt(self, data: bytes) -> None:
        incoming, outgoing, read, pending = self._incoming, self._outgoing, self._tls_read, self._tls_pending
        assert incoming is not None
        assert outgoing is not None
        incoming.write(data)
        while not self._paused and self._above is not None and (incoming.pending or pending()):
            at = 0
            more = True
            try:
                while at < _PLAIN_BYTES and (incoming.pending or pending()):
                    count = read(_PLAIN_BYTES - at, _plain[at:])
                    if not count:
                        self._eof, more = True, False
                        break
                    at += count
            except ssl.SSLWantReadError:
                more = False
            except ssl.SSLZeroReturnError:
                self._eof, more = True, False
            except ssl.SSLError as error:
                self._broken(error, bytes(_plain[:at]))
                return
            if at and self._into_buffers:
                self._fill_buffers(at)
            elif at:
                self._above.data_received(bytes(_plain[:at]))
            if not more:
                break
        if outgoing.pending:  # a response to a message of TLS itself
            self._flush()
        if self._eof:
            self._report_eof()

    def _fill_buffers(self, count: int) -> None:
        """Copy decrypted bytes into the buffers of a protocol that reads secrets; no other copy remains."""
        at = 0
        while at < count and isinstance(self._above, asyncio.BufferedProtocol):
            room = cast("memoryview", self._above.get_buffer(count - at))
            taken = min(len(room), count - at)
            room[:taken] = _plain[at : at + taken]
            at += taken
            self._above.buffer_updated(taken)
        rest = bytes(_plain[at:count])
        _plain[:count] = bytes(count)
        if rest and isinstance(self._above, asyncio.Protocol):
            self._above.data_received(rest)

    def set_protocol(self, above: asyncio.BaseProtocol) -> None:
        """Let another protocol receive the following bytes."""
        self._above = cast("asyncio.Protocol", above)
        self._into_buffers = isinstance(above, asyncio.BufferedProtocol)

    def _broken(self, error: ssl.SSLError, before: bytes) -> None:
        """End as if the peer had reset the connection, because its bytes are not valid TLS."""
        above = self._above
        if above is None:
            return
        if before and not self._into_buffers:
            above.data_received(before)
        self._flush()
        self._above = None
        self.abort()
        above.connection_lost(ConnectionResetError(f"TLS: {error.reason or error}"))

    def _report_eof(self) -> None:
        """Report the end of data to the protocol above, when it has received everything."""
        if self._eof_reported or self._paused or self._unfed or self._above is None:
            return
        if self._tls_pending():
            return
        self._eof_reported = True
        if not self._above.eof_received():
            self.close()

    def _flush(self) -> None:
        outgoing, raw = self._outgoing, self._raw
        if outgoing is not None and outgoing.pending and raw is not None and not raw.is_closing():
            (self._writer or raw).write(outgoing.read())

    # --- the transport for the protocol above

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt and send."""
        if self._closing or self._lost:
            return
        if len(data) <= FEED_BYTES:
            self._tls_write(data)
            self._writer.write(self._outgoing.read())  # type: ignore[union-attr]
            return
        encrypt, outgoing, writer = self._tls_write, self._outgoing, self._writer
        assert outgoing is not None
        assert writer is not None
        view = memoryview(data)
        pieces = []
        for at in range(0, len(data), FEED_BYTES):
            encrypt(view[at : at + FEED_BYTES])
            pieces.append(outgoing.read())
        writer.writelines(pieces)

    def can_write_eof(self) -> bool:
        """True: a close_notify ends one direction."""
        return True

    def write_eof(self) -> None:
        """Send a close_notify, and continue reading."""
        if not self._closing and not self._lost:
            self._notify_close()
            assert self._raw is not None
            self.end_direct_writes()
            self._raw.write_eof()

    def pause_reading(self) -> None:
        """Stop decrypting; the plain socket is not read."""
        if not self._paused:
            self._paused = True
            self._pause_raw()

    def _pause_raw(self) -> None:
        if not self._raw_paused and self._raw is not None and not self._raw.is_closing():
            self._raw_paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Continue with the kept bytes, then with the socket."""
        if self._paused:
            self._paused = False
            self._go_on_reading()

    def _resume_raw(self) -> None:
        if self._raw_paused and self._raw is not None and not self._raw.is_closing():
            self._raw_paused = False
            self._raw.resume_reading()

    def _go_on_reading(self) -> None:
        self._resume_raw()
        assert self._incoming is not None
        if self._unfed or self._eof or self._incoming.pending or self._tls_pending():
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._paused or self._above is None or self._lost:
            return
        self._decrypt(b"")
        self._take_in()
        if self._eof:
            self._report_eof()

    def is_closing(self) -> bool:
        """Whether the transport is closing."""
        return self._closing or self._raw is None or self._raw.is_closing()

    def close(self) -> None:
        """Send what was written, then a close_notify, then close."""
        if self._closing:
            return
        if self._above is not None and not self._lost:
            self._notify_close()
        self._closing = True
        self.end_direct_writes()
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        """Close now."""
        self._closing = True
        self.end_direct_writes()
        if self._raw is not None:
            self._raw.abort()

    def begin_direct_writes(self, descriptor: int) -> None:
        """Write to the plain socket past the event loop; see `DirectWriter`."""
        if self._writer is not None and not self._closing and not self._lost:
            self._writer.begin_direct_writes(descriptor)

    def end_direct_writes(self) -> None:
        """Leave the socket to the plain transport."""
        if self._writer is not None:
            self._writer.end_direct_writes()

    def _notify_close(self) -> None:
        if self._tls is None:
            return
        with contextlib.suppress(ssl.SSLError, OSError, ValueError):  # the peer's close_notify has not arrived, and Sluice's is on its way
            self._tls.unwrap()
        self._flush()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Set the limits of the plain transport, in encrypted bytes."""
        assert self._raw is not None
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that are unsent."""
        return 0 if self._raw is None or self._lost else self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information of the plain transport, or `ssl_object`."""
        if name == "ssl_object":
            return self._tls
        return default if self._raw is None else self._raw.get_extra_info(name, default)


def _no_tls(*_: object) -> int:
    raise AssertionError("before the handshake")


def _no_bytes(_count: int) -> bytes:
    raise AssertionError("before the handshake")


def tls_words(error: ssl.SSLError) -> str:
    """Return OpenSSL's message without its source lines."""
    verify = getattr(error, "verify_message", None)
    what = (error.reason or str(error)).replace("_", " ").lower()
    return f"{what}: {verify}" if verify else what
