"""The buffer account of the process: bytes that connections keep, by address, and which connection ends when they exceed the budget.

It does no I/O: callers report the bytes they keep, and it calls a connection to end it. Bytes that pass straight through are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quota.connections.client_address import client_network

STEP_BYTES: Final = 64 * 1024
"""Reservations are rounded up to steps of this size; less than a step is counted exactly, since most connections keep few bytes."""
FRAMES_SHARE: Final = 0.90
"""Share of the limit that may be reserved. Above it no connection is accepted (`proxy.net.buffer_budget`); no attack may cause that."""
FRAMES_SHARE_MIN: Final = 0.40
"""Share of the limit that remains for frames, however many bytes clients have not read."""


class BufferAccount:
    """The reservations of all connections.

    Attributes:
        bytes_max: the limit, which a reload may change.
        reserved_bytes: sum of all reservations.
        unsent_bytes: unsent bytes of all transports at the last measurement.
    """

    __slots__ = ("_addresses", "bytes_max", "reserved_bytes", "unsent_bytes")

    def __init__(self, bytes_max: int = 1 << 62) -> None:
        self._addresses: dict[str, _Address] = {}
        self.bytes_max = bytes_max
        self.reserved_bytes = 0
        self.unsent_bytes = 0

    @property
    def frames_bytes_max(self) -> float:
        """Most bytes that may be reserved now."""
        return max(FRAMES_SHARE * self.bytes_max - self.unsent_bytes, FRAMES_SHARE_MIN * self.bytes_max)

    def open(self, host: str) -> Reservation:
        """Return the reservation of a connection from `host`; an empty one costs nothing."""
        return Reservation(self, host)

    def change(self, reservation: Reservation, reserved_bytes: int) -> None:
        """Set a reservation; the largest holder is ended when the sum exceeds the limit."""
        grown = self._book(reservation, reserved_bytes)
        while grown and self.reserved_bytes > self.frames_bytes_max:
            if not self._evict(reservation):
                return

    def _book(self, reservation: Reservation, reserved_bytes: int) -> bool:
        key = reservation.address
        address = self._addresses.get(key)
        if address is None:
            address = self._addresses[key] = _Address()
        more = reserved_bytes - reservation.reserved_bytes
        reservation.reserved_bytes = reserved_bytes
        address.reserved_bytes += more
        self.reserved_bytes += more
        if reserved_bytes and not reservation.is_evicted:
            address.members[reservation] = None
        else:
            address.members.pop(reservation, None)
        if not address.reserved_bytes:
            del self._addresses[key]
        return more > 0

    def _evict(self, newest: Reservation) -> bool:
        """End the largest connection of the address that holds most; False when there is none."""
        holders = [address for address in self._addresses.values() if address.members]
        if not holders:
            return False
        address = max(holders, key=_reserved_bytes)
        largest = max(address.members, key=_reserved_bytes)
        del address.members[largest]
        largest.is_evicted = True
        if largest is not newest and largest.end is not None:
            largest.end()
        return largest is not newest  # the connection that is running now ends when it checks `is_evicted`


class Reservation:
    """The reservation of one connection.

    Attributes:
        reserved_bytes: number of bytes.
        is_evicted: whether the connection has to end, because the limit is reached and it holds most.
        end: ends the connection, which frees its bytes; called when another connection reserves.
    """

    __slots__ = ("_account", "_host", "end", "is_evicted", "reserved_bytes")

    def __init__(self, account: BufferAccount, host: str) -> None:
        self._account = account
        self._host = host
        self.reserved_bytes = 0
        self.is_evicted = False
        self.end: Callable[[], None] | None = None

    @property
    def address(self) -> str:
        """The address (IPv6: network) that the connection counts for."""
        return _counted_as(self._host)

    def keep(self, kept_bytes: int) -> None:
        """Set the number of bytes kept now."""
        reserved_bytes = kept_bytes if kept_bytes <= STEP_BYTES else -(-kept_bytes // STEP_BYTES) * STEP_BYTES
        if reserved_bytes != self.reserved_bytes:
            self._account.change(self, reserved_bytes)


class _Address:
    """The reservations of one address, and the connections that can be ended."""

    __slots__ = ("members", "reserved_bytes")

    def __init__(self) -> None:
        self.members: dict[Reservation, None] = {}
        self.reserved_bytes = 0


def _counted_as(host: str) -> str:
    return client_network(host)


def _reserved_bytes(holder: _Address | Reservation) -> int:
    return holder.reserved_bytes
