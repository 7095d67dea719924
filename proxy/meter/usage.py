"""Usage counters of each client at each broker, independent of its quota. The data path adds to them; they are collected every second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.api_keys import ApiKey
from proxy.telemetry.client_usage import OTHER, Usage
from quota.entity import KafkaPrincipal

CELLS_MAX: Final = 50_000
"""With more (client, broker, listener, class), new ones are counted under the client `__other__` ..."""
CELLS_PER_MAKER_MAX: Final = 5_000
"""... and with more than half as many, new ones of a user, or of an unknown client's address, that has this many."""

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
METADATA: Final = "metadata"
GROUP: Final = "group"
TRANSACTION: Final = "transaction"
ADMIN: Final = "admin"
OTHER_CLASS: Final = "other"

_CLASSES: Final = {
    PRODUCE: (0,),
    FETCH: (1, 78, 79),
    METADATA: (2, 3, 18, 23, 60, 75),
    GROUP: (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69, 76, 77, 88, 89, 90, 91, 92),
    TRANSACTION: (22, 24, 25, 26, 28, 61, 65, 66),
    ADMIN: (19, 20, 21, 29, 30, 31, 32, 33, 34, 35, 37, 38, 39, 40, 41, 43, 44, 45, 46, 48, 49, 50, 51, 55, 57, 64, 74, 80, 81),
}
_CLASS_OF: Final = {key: name for name, keys in _CLASSES.items() for key in keys}


def api_class(key: ApiKey | int) -> str:
    """Return the class of an API."""
    return _CLASS_OF.get(int(key), OTHER_CLASS)


class Place(NamedTuple):
    """Where a client is served: its broker's address, and its listener."""

    address: tuple[str, int]
    listener: str


class UsageCell:
    """Usage of one client at one place with one class of APIs since the last collection; a request counts when its response arrives.

    Attributes:
        request_bytes, fetch_bytes: totals; for a metered client no other counters exist.
        taken_request_bytes, taken_fetch_bytes: the totals at the last collection.
    """

    __slots__ = (
        "api_class",
        "client_ref",
        "connections_open",
        "connections_opened",
        "fetch_bytes",
        "handler_ns",
        "is_dirty",
        "place",
        "request_bytes",
        "requests",
        "response_bytes",
        "taken_fetch_bytes",
        "taken_request_bytes",
        "throttle_ms",
        "throttled_requests",
        "waited_ms",
        "waited_requests",
    )

    def __init__(self, client_ref: int, place: Place, api_class: str) -> None:
        self.client_ref = client_ref
        self.place = place
        self.api_class = api_class
        self.connections_open = 0
        self.request_bytes = 0
        self.fetch_bytes = 0
        self.clear()

    def clear(self) -> None:
        """Begin to count again; open connections stay counted."""
        self.requests = 0
        self.taken_request_bytes = self.request_bytes
        self.response_bytes = 0
        self.taken_fetch_bytes = self.fetch_bytes
        self.handler_ns = 0
        self.throttled_requests = 0
        self.throttle_ms = 0
        self.waited_requests = 0
        self.waited_ms = 0
        self.connections_opened = 0
        self.is_dirty = False  # a change without a request

    def throttled(self, throttle_ms: int, *, waits: bool) -> None:
        """Count one verdict above zero; `waits`: the client is delayed, and not only observed or excused."""
        self.throttled_requests += 1
        self.throttle_ms += throttle_ms
        if waits:
            self.waited_requests += 1
            self.waited_ms += throttle_ms
        self.is_dirty = True


UsageRow = tuple[int, tuple[str, int], str, str, int, int, int, int, int, int, int, int, int, int, int, int]
"""client_ref, broker's address, listener, class, and the counters in the order of `usage_table.COLUMNS`."""


class ClientOfUsage(NamedTuple):
    """The client that a number in usage rows stands for."""

    client_ref: int
    principal_type: str
    principal: str
    client_id: str


class UsageCells:
    """All cells; a limited number, since clients choose their ids.

    Args:
        on_new: called with the number of cells when it changes.
    """

    __slots__ = ("_cells", "_cells_max", "_cells_per_maker_max", "_clients", "_on_new", "new_clients")

    def __init__(
        self,
        cells_max: int = CELLS_MAX,
        on_new: Callable[[int], None] = lambda _count: None,
        cells_per_maker_max: int = CELLS_PER_MAKER_MAX,
    ) -> None:
        self._cells_per_maker_max = cells_per_maker_max
        self._on_new = on_new
        self._cells: dict[tuple[int, Place, str], UsageCell] = {}
        self._cells_max = cells_max
        self._clients: dict[tuple[Usage | None, str], int] = {}
        self.new_clients: list[ClientOfUsage] = []
        """Clients that were not announced to the writer."""

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, place: Place, usage: Usage, principal: KafkaPrincipal, api_class: str, others: Usage) -> UsageCell:
        """Return the cell of a client, the same object at every call. Its bytes are those of `usage`, or of `others` beyond the limit."""
        key = (self._client_ref(usage, principal.type, usage.user, usage.client_id), place, api_class)
        cell = self._cells.get(key)
        if cell is None and self._is_full_for(usage):
            usage = others
            key = (self._client_ref(None, "", OTHER, OTHER), place, api_class)
            cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = UsageCell(*key)
            usage.share.cells += 1
            if api_class == PRODUCE:
                usage.produced_by(cell)
            elif api_class == FETCH:
                usage.fetched_by(cell)
            self._on_new(len(self._cells))
        return cell

    def _is_full_for(self, usage: Usage) -> bool:
        taken = len(self._cells)
        return taken >= self._cells_max or (usage.share.cells >= self._cells_per_maker_max and taken >= self._cells_max // 2)

    def opened(self, place: Place, usage: Usage, principal: KafkaPrincipal, others: Usage) -> UsageCell:
        """Count a connection for the client of its first request."""
        cell = self.cell(place, usage, principal, OTHER_CLASS, others)
        cell.connections_opened += 1
        cell.connections_open += 1
        cell.is_dirty = True
        return cell

    def take(self) -> list[UsageRow]:
        """Return what changed since the last call, and begin again."""
        changed = [cell for cell in self._cells.values() if cell.requests or cell.is_dirty or cell.handler_ns]
        rows = [_row(cell) for cell in changed]
        for cell in changed:
            cell.clear()
        return rows

    def _client_ref(self, usage: Usage | None, principal_type: str, user: str, client_id: str) -> int:
        key = (usage, principal_type)
        ref = self._clients.get(key)
        if ref is None:
            ref = self._clients[key] = len(self._clients)
            self.new_clients.append(ClientOfUsage(ref, principal_type, user, client_id))
        return ref


def _row(cell: UsageCell) -> UsageRow:
    place, request_bytes = cell.place, cell.request_bytes - cell.taken_request_bytes
    return (
        cell.client_ref,
        place.address,
        place.listener,
        cell.api_class,
        cell.requests,
        request_bytes,
        cell.response_bytes,
        request_bytes if cell.api_class == PRODUCE else 0,  # Kafka counts the frames of produced bytes
        cell.fetch_bytes - cell.taken_fetch_bytes,
        cell.handler_ns,
        cell.throttled_requests,
        cell.throttle_ms,
        cell.connections_opened,
        cell.connections_open,
        cell.waited_requests,
        cell.waited_ms,
    )
