"""Usage by user and client-id since the process began, and the table of all of them.

No lock: one thread writes, others read a value that may be slightly old.
"""

from collections.abc import Hashable
from typing import Final, Protocol

from proxy.telemetry.counters import API_KEYS_MAX
from quota.names import kept_name

USAGES_MAX: Final = 10_000
"""Each has 96 numbers, which a full garbage collection visits: more of them would stall the event loop for longer than 50 ms."""
USAGES_PER_MAKER_MAX: Final = 1_000
"""When half of the table is used, one maker has at most this many entries; the other half is for other makers."""
OTHER: Final = "__other__"
"""Name under which clients are counted together, because the table or the number of series is full."""


class CountsBytes(Protocol):
    """Counts bytes of requests, and fetched bytes, from its creation on."""

    request_bytes: int
    fetch_bytes: int


class UsageShare:
    """Number of table entries of one maker: a user, or clients of one address without a known user."""

    __slots__ = ("cells", "usages")

    def __init__(self) -> None:
        self.usages = 0
        self.cells = 0


class Usage:
    """Usage of one user with one client-id since the process began.

    Attributes:
        own_produce_bytes, own_fetch_bytes: bytes that no cell counts.
        share: of its maker.
    """

    __slots__ = (
        "_exempt_since",
        "_fetched_by",
        "_produced_by",
        "client_id",
        "exempt_bytes",
        "own_fetch_bytes",
        "own_produce_bytes",
        "request_ns",
        "requests",
        "share",
        "throttle_ms",
        "throttled_requests",
        "user",
    )

    def __init__(self, user: str, client_id: str, share: UsageShare | None = None) -> None:
        self.user = user
        self.client_id = client_id
        self.share = UsageShare() if share is None else share
        self.own_produce_bytes = 0
        self.own_fetch_bytes = 0
        self._produced_by: tuple[CountsBytes, ...] = ()
        self._fetched_by: tuple[CountsBytes, ...] = ()
        self.request_ns = 0.0
        """Request time as charged."""
        self.requests = [0] * API_KEYS_MAX
        """By API key."""
        self.throttled_requests: dict[tuple[str, str], int] = {}
        """By quota type and matching rule."""
        self.throttle_ms: dict[tuple[str, str], int] = {}
        """By quota type and matching rule."""
        self.exempt_bytes = 0
        """Bytes produced and fetched while the user was exempt, in periods that have ended."""
        self._exempt_since: int | None = None  # the bytes at the beginning of the current period

    @property
    def produce_bytes(self) -> int:
        """Bytes of Produce requests. It never decreases, also when read by another thread."""
        return self.own_produce_bytes + sum([cell.request_bytes for cell in self._produced_by])

    @property
    def fetch_bytes(self) -> int:
        """Bytes of responses to Fetch."""
        return self.own_fetch_bytes + sum([cell.fetch_bytes for cell in self._fetched_by])

    def produced_by(self, cell: CountsBytes) -> None:
        """Add the bytes of Produce requests that `cell` counts."""
        self._produced_by += (cell,)

    def fetched_by(self, cell: CountsBytes) -> None:
        """Add the bytes of responses to Fetch that `cell` counts."""
        self._fetched_by += (cell,)

    def count_exempt(self, is_exempt: bool) -> None:
        """Begin or end a period in which the user is exempt."""
        since, total = self._exempt_since, self.produce_bytes + self.fetch_bytes
        if is_exempt and since is None and self.user != OTHER:
            self._exempt_since = total
        elif not is_exempt and since is not None:
            self.exempt_bytes += total - since
            self._exempt_since = None

    @property
    def exempt_bytes_total(self) -> int:
        """Bytes in all periods in which the user was exempt."""
        since = self._exempt_since
        return self.exempt_bytes + (0 if since is None else self.produce_bytes + self.fetch_bytes - since)

    def throttled(self, quota_type: str, rule: str, throttle_ms: int) -> None:
        """Count one verdict above zero; `rule` names the entity of its quota."""
        key = (quota_type, rule)
        self.throttled_requests[key] = self.throttled_requests.get(key, 0) + 1
        self.throttle_ms[key] = self.throttle_ms.get(key, 0) + throttle_ms


class UsageTable:
    """Usage by user and client-id; a limited number, then one for all others, since clients choose their ids.

    One maker gets at most half of a table with many entries.
    """

    __slots__ = ("_shares", "_usages", "_usages_max", "_usages_per_maker_max", "other")

    def __init__(self, usages_max: int = USAGES_MAX, usages_per_maker_max: int = USAGES_PER_MAKER_MAX) -> None:
        self._usages: dict[tuple[str, str], Usage] = {}
        self._shares: dict[Hashable, UsageShare] = {}
        self._usages_per_maker_max = usages_per_maker_max
        self._usages_max = usages_max
        self.other = Usage(OTHER, OTHER)

    def get(self, user: str, client_id: str, maker: Hashable = None) -> Usage:
        """Return the usage of `user` with `client_id`: the same object at every call.

        Args:
            maker: the maker that the entry counts for; None: the user's.
        """
        user, client_id = kept_name(user), kept_name(client_id)
        usage = self._usages.get((user, client_id))
        return usage if usage is not None else self._add(user, client_id, user if maker is None else maker)

    def __len__(self) -> int:
        return len(self._usages)

    def snapshot(self) -> list[Usage]:
        """Return all usages atomically with respect to a thread that adds; `other` is the last."""
        return [*self._usages.values(), self.other]

    def _add(self, user: str, client_id: str, maker: Hashable) -> Usage:
        taken = len(self._usages)
        share = self._shares.get(maker)
        has_many = share is not None and share.usages >= self._usages_per_maker_max
        if taken >= self._usages_max or (has_many and taken >= self._usages_max // 2):
            return self.other
        if share is None:
            share = self._shares[maker] = UsageShare()
        share.usages += 1
        usage = self._usages[user, client_id] = Usage(user, client_id, share)
        return usage
