"""Number and rate of connections per address, and their limits.

Source: Kafka 3.8 `ConnectionQuotas`, its methods for an `InetAddress`.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from quota.connections.client_address import SINGLE_ADDRESS_BITS, address_group, plain_address
from quota.connections.connection_rate import UNLIMITED_CONNECTIONS, ConnectionRate, RateObserver
from quota.connections.elsewhere import AddressKey, Elsewhere
from quota.errors import QuotaError
from quota.sensor import RingState

INACTIVE_MS: Final = 3_600_000
"""A rate without a record for longer than this is forgotten."""
RATES_MAX: Final = 65_536
"""Clients choose their addresses, so the number of rates has a bound; beyond it the least recently recorded one is forgotten."""

IpKey = AddressKey


class CountObserver(Protocol):
    """Receives the changes of the counts of open connections."""

    def slots_changed(self, listener: str, change: int) -> None:
        """`change` connections of a listener took a slot; negative: gave it back."""

    def address_changed(self, key: IpKey, change: int) -> None:
        """`change` connections of an address were admitted; negative: have ended."""


class IpRate(NamedTuple):
    """The rate of one address, and its bound."""

    key: IpKey
    rate: ConnectionRate


class IpConnections:
    """Counts and rates of all addresses.

    Attributes:
        counts: open connections by address; entries without connections are removed.
        max_connections, max_overrides: the limit per address; overrides by plain address.
        ipv6_prefix_bits: IPv6 addresses that share this many leading bits count as one, unless an address has an override.
        forgotten: rates dropped because the table was full.
        elsewhere: other processes that share the limits; None: there are none.
    """

    def __init__(self, num_samples: int = 11, window_ms: int = 1_000, rates_max: int = RATES_MAX) -> None:
        self._num_samples = num_samples
        self._window_ms = window_ms
        self._rates_max = rates_max
        self._rates: dict[IpKey, ConnectionRate] = {}  # in the order of their last record
        self._default_rate = UNLIMITED_CONNECTIONS
        self._rate_overrides: dict[str, int] = {}
        self._limits_rates = False
        self.counts: dict[IpKey, int] = {}
        self.max_connections = UNLIMITED_CONNECTIONS
        self.max_overrides: Mapping[str, int] = {}
        self.ipv6_prefix_bits = SINGLE_ADDRESS_BITS
        self.forgotten = 0
        self.observer: RateObserver | None = None
        self.count_observer: CountObserver | None = None
        self.elsewhere: Elsewhere | None = None

    def __len__(self) -> int:
        return len(self._rates)

    def key_of(self, table: int, host: str) -> IpKey:
        """Return the key of a client at `host` in `table`. A connection keeps its key when settings change."""
        if ":" not in host:
            return (table, host)
        address = plain_address(host)
        if address in self._rate_overrides or address in self.max_overrides:
            return (table, address)
        return (table, address_group(address, self.ipv6_prefix_bits))

    # Number of connections

    def max_of(self, address: str) -> int:
        """Return the maximum number of connections of an address."""
        return self.max_overrides.get(address, self.max_connections) if self.max_overrides else self.max_connections

    def enter(self, key: IpKey) -> int:
        """Count a connection; return how many the address has now."""
        return self.change(key, 1)

    def leave(self, key: IpKey) -> int:
        """Remove a connection; return how many the address still has.

        Raises:
            QuotaError: the address has none.
        """
        if key not in self.counts:
            raise QuotaError(f"no connection of {key[1]} is counted")
        return self.change(key, -1)

    def change(self, key: IpKey, change: int) -> int:
        """Count `change` connections of an address, of whatever process; return how many the address has now."""
        count = self.counts.get(key, 0) + change
        if count:
            self.counts[key] = count
        else:
            self.counts.pop(key, None)
        if self.count_observer is not None:
            self.count_observer.address_changed(key, change)
        if self.elsewhere is not None:
            self.elsewhere.open_changed(key)
        return count

    def limited_count(self, key: IpKey) -> int:
        """Return how many connections an address has here; 0 without a limit on them."""
        return self.counts.get(key, 0) if self.max_of(key[1]) < UNLIMITED_CONNECTIONS else 0

    def count_elsewhere(self, key: IpKey, now_ms: int) -> int:
        """Return how many connections an address has at other processes that share the limits."""
        return 0 if self.elsewhere is None else self.elsewhere.open_of(key, now_ms)

    # Rate of connections

    def rate_bound(self, address: str) -> int:
        """Return the maximum rate of an address in connections per second."""
        return self._rate_overrides.get(address, self._default_rate)

    def record(self, key: IpKey, now_ms: int) -> int:
        """Count an attempt where a limit applies, and return its delay in ms; an attempt with a delay above 0 is not counted."""
        if not self._limits_rates:
            return 0
        bound = self.rate_bound(key[1])
        if bound >= UNLIMITED_CONNECTIONS:
            return 0
        rate = self._rates.pop(key, None)
        if rate is None:
            rate = self._begin_rate(key, bound, now_ms)
        else:
            self._rates[key] = rate
        throttle_ms = rate.record_one(now_ms)
        if self.observer is not None:
            self.observer.recorded(rate, throttle_ms, throttle_ms, now_ms)
        if throttle_ms > 0:
            rate.take_back(now_ms)
            if self.observer is not None:
                self.observer.taken_back(rate, now_ms)
        elif self.elsewhere is not None:
            self.elsewhere.rate_counted(key, 1)
        return throttle_ms

    def _begin_rate(self, key: IpKey, bound: int, now_ms: int) -> ConnectionRate:
        """Return a new rate of an address; what other processes counted is in it."""
        rate = ConnectionRate(bound, self._num_samples, self._window_ms, now_ms)
        self._add_rate(key, rate)
        if self.elsewhere is not None:
            for time_ms, connections in self.elsewhere.begin_rate(key):
                self._count_elsewhere(rate, connections, time_ms)
        return rate

    def record_elsewhere(self, key: IpKey, connections: int, now_ms: int) -> bool:
        """Record connections that another process counted, without a check; False: the address has no rate here."""
        rate = self._rates.pop(key, None)
        if rate is None:
            return False
        self._rates[key] = rate
        self._count_elsewhere(rate, connections, now_ms)
        return True

    def _count_elsewhere(self, rate: ConnectionRate, connections: int, now_ms: int) -> None:
        time_ms = rate.count_elsewhere(connections, now_ms)
        if self.observer is not None:
            self.observer.counted_elsewhere(rate, connections, time_ms)

    def continue_rate(self, key: IpKey, state: RingState) -> ConnectionRate:
        """Continue a rate of another process, as the most recently recorded one of this table; return it."""
        rate = ConnectionRate(self.rate_bound(key[1]), state.num_samples, state.window_ms)
        rate.continue_from(state)
        self._add_rate(key, rate)
        return rate

    def _add_rate(self, key: IpKey, rate: ConnectionRate) -> None:
        if len(self._rates) >= self._rates_max:
            del self._rates[next(iter(self._rates))]
            self.forgotten += 1
        self._rates[key] = rate

    def replace_rates(self, default: int | None, overrides: Mapping[str, int]) -> None:
        """Replace all rate limits at once."""
        self._default_rate = UNLIMITED_CONNECTIONS if default is None else default
        self._rate_overrides = dict(overrides)
        self._rebind(None)

    def _rebind(self, address: str | None) -> None:
        self._limits_rates = bool(self._rate_overrides) or self._default_rate < UNLIMITED_CONNECTIONS
        for (_, of), rate in self._rates.items():
            if address is None or of == address:
                rate.bound = self.rate_bound(of)

    # Maintenance

    def latest_rates(self) -> Iterator[IpRate]:
        """Return every rate, the most recently recorded first."""
        return (IpRate(key, rate) for key, rate in reversed(self._rates.items()))

    def rates(self) -> Iterator[IpRate]:
        """Return every rate, the least recently recorded first."""
        return (IpRate(key, rate) for key, rate in self._rates.items())

    def forget_rates(self) -> None:
        """Forget all rates, because addresses are assigned to tables differently from now on."""
        self._rates.clear()

    def expire(self, now_ms: int) -> int:
        """Forget rates without a record for more than an hour; return how many."""
        idle: list[IpKey] = []
        for key, rate in self._rates.items():
            if now_ms - rate.last_record_ms <= INACTIVE_MS:
                break
            idle.append(key)
        for key in idle:
            del self._rates[key]
        return len(idle)
