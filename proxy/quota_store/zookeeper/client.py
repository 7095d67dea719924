"""The ZooKeeper client for quotas: every call has a timeout, and none runs on the event loop.

kazoo's synchronous calls wait without limit while the connection is suspended, so this module uses asynchronous calls with a time limit.
Watches are kazoo's low-level ones, which are lost with the connection: the owner of a watch reads everything again at every connect.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from proxy.quota_store.zookeeper.access import MECHANISM, PLAIN, Access, AccessHandler
from proxy.quota_store.zookeeper.reads import Answer, MultiRead, Node, portions, read_children, read_nodes

T = TypeVar("T")

CALL_S: Final = 5.0
SESSION_S: Final = 10.0
RECONNECT_S: Final = (0.1, 1.0)
"""First and longest pause between attempts to connect."""

logging.getLogger("kazoo").addHandler(logging.NullHandler())
logging.getLogger("kazoo").propagate = False  # its problems are reported as the store's state


class ZookeeperUnavailable(Exception):
    """ZooKeeper did not respond; it may still execute the request."""


class Denied(Exception):
    """ZooKeeper refused the request: Sluice is not authorized."""


class Conflict(Exception):
    """A node has changed since it was read; nothing was written."""


class Create(NamedTuple):
    """Create a node with the ACL of the node `like`; `sequence`: ZooKeeper appends a number to the name."""

    path: str
    data: bytes
    like: str
    sequence: bool = False


class Write(NamedTuple):
    """Replace the data of a node; its version has to match."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Remove a node without children; its version has to match (-1: any)."""

    path: str
    version: int


Operation = Create | Write | Delete


class ZookeeperClient:
    """A client with one session. One thread calls its methods, apart from `close`.

    Args:
        connect: HOST:PORT[,HOST:PORT...][/CHROOT].
        on_connected: called on a thread of kazoo when the connection is made (True) or lost (False); it must not block.
        access: TLS and credentials.
    """

    def __init__(self, connect: str, on_connected: Callable[[bool], None], *, access: Access = PLAIN) -> None:
        first, longest = RECONNECT_S
        self._handler = AccessHandler(access)
        self._client = KazooClient(
            hosts=connect,
            timeout=SESSION_S,
            connection_retry=KazooRetry(max_tries=-1, delay=first, backoff=2, max_delay=longest),
            auth_data=[("digest", access.digest)] if access.digest else None,
            sasl_options=dict(MECHANISM) if access.login else None,
            handler=self._handler,
            randomize_hosts=True,
        )
        self._client._connection._authenticate_with_sasl = lambda _host, timeout: self._handler.log_in(self._client._connection, timeout)
        self._client.add_listener(lambda state: on_connected(state == KazooState.CONNECTED))
        self._acls: dict[str, list[Any]] = {}
        self._reads_many = True  # False after a ZooKeeper before 3.6 was detected

    @property
    def problem(self) -> str | None:
        """Why TLS or the login of the last connection failed; None: they did not fail."""
        return self._handler.problem

    def start(self) -> None:
        """Start to connect, without waiting."""
        self._client.start_async()

    def close(self) -> None:
        """Close the session in a separate thread, since this can take long."""

        def end() -> None:
            self._client.stop()
            self._client.close()

        threading.Thread(target=end, name="sluice-zookeeper-end", daemon=True).start()

    def get(self, path: str, watch: Callable[[Any], None] | None = None) -> Node | None:
        """Return a node; None: the node does not exist.

        Raises:
            ZookeeperUnavailable, Denied: the node cannot be read.
        """
        return self._answer(self._client.get_async(path, watch=watch), _node)

    def created_ms(self, path: str) -> int | None:
        """Return the creation time of a node in ms since the epoch, by ZooKeeper's clock; None: the node does not exist.

        Raises:
            ZookeeperUnavailable, Denied: the outcome is unknown.
        """
        return self._answer(self._client.exists_async(path), lambda stat: None if stat is None else int(stat.ctime))

    def exists(self, path: str, watch: Callable[[Any], None] | None = None) -> bool:
        """Whether a node exists; the watch is set in both cases.

        Raises:
            ZookeeperUnavailable, Denied: the outcome is unknown.
        """
        return bool(self._answer(self._client.exists_async(path, watch=watch), lambda stat: stat is not None))

    def children(self, path: str, watch: Callable[[Any], None] | None = None) -> list[str]:
        """Return the names of a node's children; an empty list if the node does not exist.

        Raises:
            ZookeeperUnavailable, Denied: the children cannot be read.
        """
        return self._answer(self._client.get_children_async(path, watch=watch), list) or []

    def get_many(self, paths: Iterable[str]) -> Iterator[tuple[str, Node | Denied | None]]:
        """Yield path and node in the order of `paths`, with many nodes in one request. Instead of a node: None if it does not exist.

        Raises:
            ZookeeperUnavailable: the rest cannot be read.
        """
        for portion in portions(paths):
            for path, found in zip(portion, self._read_many(read_nodes(portion), self._client.get_async, _node), strict=True):
                if isinstance(found, Node):
                    yield path, found
                else:
                    yield path, _failure(found)

    def children_of_many(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield path and names of children in the order of `paths`, with many nodes in one request.

        Raises:
            ZookeeperUnavailable, Denied: the rest cannot be read.
        """
        for portion in portions(paths):
            for path, found in zip(portion, self._read_many(read_children(portion), self._client.get_children_async, list), strict=True):
                if isinstance(found, list):
                    yield path, found
                elif (denied := _failure(found)) is not None:
                    raise denied
                else:
                    yield path, []

    def _read_many(self, request: MultiRead, get: Callable[[str], Any], read: Callable[[Any], Answer]) -> list[Answer]:
        """Return an answer for each path; a ZooKeeper before 3.6 gets one request for each path."""
        if self._reads_many:
            chroot = self._client.chroot
            answer = self._client.handler.async_result()
            self._client._call(request._replace(paths=[f"{chroot}{path}" for path in request.paths]), answer)
            try:
                found: list[Answer] = answer.get(timeout=CALL_S)
                return found
            except UnimplementedError:
                self._reads_many = False
            except (KazooException, KazooTimeoutError) as error:
                raise _ours(error) from None
        asked = [get(path) for path in request.paths]
        return [_one(answer, read) for answer in asked]

    def delete(self, path: str) -> None:
        """Remove a node, if it exists.

        Raises:
            ZookeeperUnavailable, Denied: the node may still exist.
        """
        self._answer(self._client.delete_async(path), lambda _: None)

    def make(self, path: str) -> None:
        """Create a node without data and its missing parents, unless it exists.

        Raises:
            ZookeeperUnavailable, Denied: a node cannot be created.
        """
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            one = "/" + "/".join(parts[:count])
            if not self.exists(one):
                try:
                    self._answer(self._client.create_async(one, b"", acl=self._acl("/" + "/".join(parts[: count - 1]))), str)
                except Conflict:
                    continue  # another client has created it

    def commit(self, operations: Sequence[Operation]) -> None:
        """Execute operations in one transaction: all or none.

        Raises:
            Conflict, Denied: nothing was done.
            ZookeeperUnavailable: the outcome is unknown.
        """
        transaction = self._client.transaction()
        for one in operations:
            match one:
                case Create(path, data, like, sequence):
                    transaction.create(path, data, acl=self._acl(like), sequence=sequence)
                    if not data:  # null, as brokers write it, and not an empty string
                        transaction.operations[-1] = transaction.operations[-1]._replace(data=None)
                case Write(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        for result in self._answer(transaction.commit_async(), list) or []:
            if isinstance(result, (RolledBackError, RuntimeInconsistency)):
                continue  # another operation is the cause
            if isinstance(result, Exception):
                raise _ours(result)

    def _acl(self, path: str) -> list[Any]:
        """Return the ACL of a node. New nodes beside or below it get the same, so that its clients can read and write them."""
        if path not in self._acls:
            try:
                found = self._answer(self._client.get_acls_async(path), lambda answer: list(answer[0]))
            except Denied:
                found = None
            self._acls[path] = found or OPEN_ACL_UNSAFE
        return self._acls[path]

    def _answer(self, answer: Any, read: Callable[[Any], T]) -> T | None:
        try:
            return read(answer.get(timeout=CALL_S))
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise _ours(error) from None


def _one(answer: Any, read: Callable[[Any], Answer]) -> Answer:
    try:
        return read(answer.get(timeout=CALL_S))
    except (KazooException, KazooTimeoutError) as error:
        failure: Exception = error
        return failure


def _failure(answer: Answer) -> Denied | None:
    """Return None if the node does not exist, or the reason why it may not be read.

    Raises:
        ZookeeperUnavailable: the outcome is unknown.
    """
    assert isinstance(answer, Exception)
    if isinstance(answer, NoNodeError):
        return None
    ours = _ours(answer)
    if isinstance(ours, Denied):
        return ours
    raise ours


def _node(answer: Any) -> Node:
    data, stat = answer
    return Node(data or b"", stat.version, stat.numChildren)


def _ours(error: Exception) -> Exception:
    if isinstance(error, (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)):
        return Conflict(type(error).__name__)
    if isinstance(error, (NoAuthError, AuthFailedError, InvalidACLError)):
        return Denied(type(error).__name__.removesuffix("Error"))
    if isinstance(error, KazooTimeoutError):
        return ZookeeperUnavailable(f"no answer in {CALL_S:.0f} s")
    return ZookeeperUnavailable(type(error).__name__)
