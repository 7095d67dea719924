"""Access to ZooKeeper: the TLS context and the credentials.

kazoo's TLS context trusts the system's authorities in addition to the given ones, and accepts TLS 1.0. Its SASL login needs a package
without wheels. So this module replaces both in the handler that opens kazoo's connections.
"""

import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import SASL

from proxy.quota_store.zookeeper.login import DigestLogin, LoginError

MECHANISM: Final = {"mechanism": "DIGEST-MD5"}
"""Setting that makes kazoo log in."""


class Access(NamedTuple):
    """TLS and credentials of a connection."""

    make_context: Callable[[], ssl.SSLContext] | None = None
    """Returns the TLS context; called at every connect, since files may change. None: no TLS."""
    server_name: str | None = None
    """Expected name in the server's certificate. None: the host of the connection."""
    digest: str | None = None
    """`user:password` of ZooKeeper's digest scheme."""
    login: tuple[str, str] | None = None
    """User and password of a SASL login."""


PLAIN: Final = Access()


class AccessHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Opens the connections of kazoo.

    Attributes:
        problem: why TLS or login of the last connection failed, with a remedy; None: they did not fail.
    """

    def __init__(self, access: Access) -> None:
        super().__init__()
        self.problem: str | None = None
        self._access = access

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any) -> Any:
        """Return a connected socket, with TLS if configured; called by kazoo, whose own TLS settings are ignored.

        Raises:
            OSError: the connection fails.
        """
        plain = socket.create_connection(address, timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        make_context = self._access.make_context
        if make_context is None:
            self.problem = None
            return plain
        try:
            secure = make_context().wrap_socket(plain, server_hostname=self._access.server_name or hostname)
        except (OSError, ValueError) as error:  # also of a TLS file that cannot be read any more
            plain.close()
            self.problem = f"TLS: {_words(error)}; check quotas.tls, and that {address[0]}:{address[1]} is ZooKeeper's secure port"
            raise ConnectionDropped("no TLS") from error
        self.problem = None
        return secure

    def select(self, read: Any, write: Any, failed: Any, timeout: float | None = None) -> Any:
        """Wait for sockets. Bytes that TLS has already decrypted do not make a socket readable, so they are checked first."""
        unpacked = [one for one in read if isinstance(one, ssl.SSLSocket) and one.pending()]
        return (unpacked, [], []) if unpacked else super().select(read, write, failed, timeout)

    def log_in(self, connection: Any, timeout: float) -> None:
        """Log in by SASL on a connection that kazoo has just opened.

        Raises:
            ConnectionDropped: the login failed; kazoo connects again.
        """
        assert self._access.login is not None
        login = DigestLogin(*self._access.login)
        try:
            challenge = _exchange(connection, b"", 1, timeout)
            login.check(_exchange(connection, login.answer(challenge), 2, timeout))
        except (LoginError, ConnectionDropped) as error:
            self.problem = f"SASL: {_words(error)}; check quotas.auth_file, and the users that ZooKeeper knows"
            raise ConnectionDropped("no login") from error
        self.problem = None


def _exchange(connection: Any, words: bytes, xid: int, timeout: float) -> bytes:
    connection._submit(SASL(words), timeout, xid)
    header, answer, offset = connection._read_header(timeout)
    if header.xid != xid or header.err:
        raise LoginError("ZooKeeper refuses the login")
    token: bytes | None = SASL.deserialize(answer, offset)[0]
    return token or b""


def _words(error: Exception) -> str:
    return (getattr(error, "verify_message", "") or str(error) or type(error).__name__).partition("\n")[0]
