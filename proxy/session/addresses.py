"""Addresses of brokers, and the addresses that clients receive instead."""

from __future__ import annotations

from collections.abc import Callable

Address = tuple[str, int]


class AddressBook:
    """The address of each broker by node id, and whether clients can be sent to it.

    A port is bound before the response with its address is sent, so `bind` is called for every new node id.

    Args:
        bind: opens the listeners of a node id; False: it has none, and its address counts as unmapped.

    Attributes:
        revision: a number that increases with each change.
    """

    __slots__ = ("_bind", "_bound", "on_move", "revision", "upstream")

    def __init__(self, bind: Callable[[int], bool]) -> None:
        self._bind = bind
        self._bound: set[int] = set()
        self.upstream: dict[int, Address] = {}
        self.revision = 0
        self.on_move: Callable[[int, Address], None] | None = None  # called with each new node id or address

    def learn(self, node_id: int, host: str, port: int) -> bool:
        """Store the address of a broker; return whether clients can be sent to it."""
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
        address_of: returns the client-side host and port of a node id, or None.
    """

    __slots__ = ("_address_of", "_book")

    def __init__(self, book: AddressBook, address_of: Callable[[int], Address | None]) -> None:
        self._book = book
        self._address_of = address_of

    def revision(self) -> int:
        """A number that changes when addresses may have changed."""
        return self._book.revision

    def client_address(self, node_id: int, host: str, port: int) -> Address | None:
        """Store the address of a broker and return its client-side address; None when it has no listener."""
        return self._address_of(node_id) if self._book.learn(node_id, host, port) else None
