"""Reads the host name (SNI) from the first message of a TLS client.

Only the name is parsed; TLS itself checks everything else. Sources: RFC 8446, 4.1.2 and 5.1; RFC 6066, 3.
"""

from __future__ import annotations

from protocol.errors import ClientHelloError

HELLO_BYTES_MAX = 64 * 1024
"""Maximum length of a ClientHello. Usual ones have a few hundred bytes, those with post-quantum keys less than 2 KiB."""

RECORDS_MAX = 256
"""Maximum number of records of one ClientHello."""
EXTENSIONS_MAX = 256
"""Maximum number of extensions searched for the name; usual messages have fewer than thirty."""

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_MAJOR_VERSION = 3
_RECORD_HEAD_BYTES, _MESSAGE_HEAD_BYTES = 5, 4
_RECORD_BYTES_MAX = 16 * 1024
_RANDOM_AND_VERSION_BYTES = 34
_SERVER_NAME, _HOST_NAME = 0, 0
_NAME_BYTES_MAX = 255


class ClientHelloReader:
    """Parses a ClientHello from pieces of any size, and keeps the bytes, since TLS needs them too.

    Attributes:
        is_whole: the message is complete, and `server_name` is known.
        server_name: the host name in lower case; None when the message has none.
        data: everything that was fed.
    """

    __slots__ = ("_at", "_message", "_records", "data", "is_whole", "server_name")

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_whole = False
        self.server_name: str | None = None
        self._at = 0  # where the next record begins
        self._message = bytearray()
        self._records = 0

    def feed(self, data: bytes) -> bool:
        """Add received bytes; return whether the message is complete.

        Raises:
            ClientHelloError: the bytes are not TLS, or not a readable ClientHello.
        """
        self.data += data
        if len(self.data) > 2 * HELLO_BYTES_MAX:
            raise ClientHelloError("a hello in too many records")
        while not self.is_whole and self._take_record():
            if len(self._message) >= _MESSAGE_HEAD_BYTES:
                self._read_message()
        return self.is_whole

    def _take_record(self) -> bool:
        """Move one record into the message; False when it is not complete."""
        head = self.data[self._at : self._at + _RECORD_HEAD_BYTES]
        if head and (head[0] != _HANDSHAKE or (len(head) > 1 and head[1] != _MAJOR_VERSION)):
            raise ClientHelloError("the first bytes are not TLS", "not_tls")
        if len(head) < _RECORD_HEAD_BYTES:
            return False
        size = int.from_bytes(head[3:])
        if not 0 < size <= _RECORD_BYTES_MAX:
            raise ClientHelloError(f"a record of {size} bytes")
        begin = self._at + _RECORD_HEAD_BYTES
        if len(self.data) < begin + size:
            return False
        self._records += 1
        if self._records > RECORDS_MAX:
            raise ClientHelloError(f"a hello in more than {RECORDS_MAX} records")
        self._message += self.data[begin : begin + size]
        self._at = begin + size
        return True

    def _read_message(self) -> None:
        if self._message[0] != _CLIENT_HELLO:
            raise ClientHelloError(f"a message of type {self._message[0]} instead of a ClientHello")
        size = int.from_bytes(self._message[1:_MESSAGE_HEAD_BYTES])
        if size > HELLO_BYTES_MAX:
            raise ClientHelloError(f"a hello of {size} bytes")
        if len(self._message) >= _MESSAGE_HEAD_BYTES + size:
            self.server_name = _server_name(_Fields(self._message[_MESSAGE_HEAD_BYTES : _MESSAGE_HEAD_BYTES + size]))
            self.is_whole = True
            self._message.clear()


class _Fields:
    """Reads one field after another, never beyond the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ClientHelloError("a hello that ends within a field")
        taken = bytes(self._data[self._at : end])
        self._at = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size_bytes: int) -> bytes:
        """A field behind its length."""
        return self.take(self.number(size_bytes))


def _server_name(hello: _Fields) -> str | None:
    hello.take(_RANDOM_AND_VERSION_BYTES)
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    if not hello:
        return None
    extensions = _Fields(hello.vector(2))
    for _ in range(EXTENSIONS_MAX):
        if not extensions:
            return None
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            return _first_host(_Fields(_Fields(content).vector(2)))
    if extensions:
        raise ClientHelloError(f"a hello with more than {EXTENSIONS_MAX} extensions")
    return None


def _first_host(names: _Fields) -> str | None:
    """Return the host name; RFC 6066 allows one name of each type and defines one type."""
    if not names or names.number(1) != _HOST_NAME:
        raise ClientHelloError("a server name that is not a host name")
    name = names.vector(2)
    if not name or len(name) > _NAME_BYTES_MAX or not name.isascii() or b"\0" in name:
        raise ClientHelloError("a server name that is not a host name")
    return name.decode("ascii").lower()
