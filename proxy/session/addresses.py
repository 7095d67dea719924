"""Addresses of brokers, and the addresses that clients receive instead."""

from __future__ import annotations

from collections.abc import Callable

Address = tuple[str, int]


class AddressBook:
    """node id -> where the broker is, and node id -> what leads clients there.

    A port is bound before the answer that names it leaves, so `bind` is asked for every node id that is new.

    Args:
        bind: opens the listeners of a node id; False: it has none, its address counts as unmapped.

    Attributes:
        revision: another number after each change.
    """

    __slots__ = ("_bind", "_bound", "on_move", "revision", "upstream")

    def __init__(self, bind: Callable[[int], bool]) -> None:
        self._bind = bind
        self._bound: set[int] = set()
        self.upstream: dict[int, Address] = {}
        self.revision = 0
        self.on_move: Callable[[int, Address], None] | None = None  # called with each new node id or address

    def learn(self, node_id: int, host: str, port: int) -> bool:
        """Take in where a broker is; return whether clients can be sent to it."""
        if node_id < 0 or not host or not 0 < port < 65536:
            return False
        if self.upstream.get(node_id) != (host, port):
            self.upstream[node_id] = (host, port)
            self.revision += 1
            if self.on_move is not None:
                self.on_move(node_id, (host, port))
        if node_id in self._bound:
            return True
        if not self._bind(node_id):
            return False
        self._bound.add(node_id)
        self.revision += 1
        return True


class ClientView:
    """The address book as the clients of one listener see it.

    Args:
        address_of: the host and port that lead clients to a node id; None: nothing does.
    """

    __slots__ = ("_address_of", "_book")

    def __init__(self, book: AddressBook, address_of: Callable[[int], Address | None]) -> None:
        self._book = book
        self._address_of = address_of

    def revision(self) -> int:
        """Return another number when addresses may lead elsewhere than before."""
        return self._book.revision

    def client_address(self, node_id: int, host: str, port: int) -> Address | None:
        """Learn where the broker is and answer where clients find it; None when it has no listener."""
        return self._address_of(node_id) if self._book.learn(node_id, host, port) else None
