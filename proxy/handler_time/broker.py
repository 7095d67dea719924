"""What all connections to one broker teach about it: what a small request costs there, and what each class of requests does."""

from __future__ import annotations

from typing import Final

from proxy.handler_time.work import Work

UNIT_NS: Final = 150_000.0
"""What a small request is taken to cost while nothing has been seen that could say."""
UP: Final = 1 + 0.04 * 0.1
DOWN: Final = 1 / (1 + 0.04 * 0.9)
"""Steps of a tracked 10th percentile: one up for every nine down, at equal distance."""
FORGET_AFTER_NS: Final = 10_000_000_000
FORGET_SHARE: Final = 0.02
SMALL_BYTES: Final = 4_096
LOAD_WINDOW_NS: Final = 20_000_000
BROKERS_MAX: Final = 1_024


class BrokerHandlerTime:
    """What is known of one broker. Bounded: a class is a kind of request and the number of bits of its size.

    Attributes:
        unit_ns: charge of a small request that does not wait.
        load: requests that did not wait and were under way at once, on average over the last moments.
        logs_in: clients log in there (SASL), so what one asks before it has is no request to handlers.
        charged_ns, elapsed_ns: sums of what was charged, and of the time that passed meanwhile, waiting included.
    """

    __slots__ = ("_busy_ns", "_classes", "_load_since_ns", "_seen_ns", "charged_ns", "elapsed_ns", "load", "logs_in", "unit_ns")

    def __init__(self) -> None:
        self.unit_ns = UNIT_NS
        self.load = 0.0
        self.logs_in = False
        self.charged_ns = 0
        self.elapsed_ns = 0
        self._seen_ns = 0
        self._classes: dict[int, float] = {}
        self._busy_ns = 0
        self._load_since_ns = 0

    def estimate(self, work: Work, size: int) -> float:
        """What a request of this kind and size costs as far as is known, in nanoseconds; nothing is learnt."""
        small = self.unit_ns + size * work.ns_per_byte
        known = self._classes.get(work.key + size.bit_length(), small)
        if work.cap:
            limit = self.unit_ns * work.cap + size * work.ns_per_byte
            return known if known < limit else limit
        return known

    def learn(self, work: Work, size: int, sample_ns: float, now_ns: int) -> float:
        """Take in how long one took, the way there and back left out; return what such a request costs now, in nanoseconds."""
        by_size = size * work.ns_per_byte
        key = work.key + size.bit_length()
        unit = self.unit_ns
        known = self._classes.get(key, unit + by_size)
        known *= UP if sample_ns > known else DOWN
        if work.cap:
            if now_ns - self._seen_ns > FORGET_AFTER_NS:  # nothing to go by: what a busy time taught holds no longer
                self.unit_ns = unit = unit + (UNIT_NS - unit) * FORGET_SHARE
            limit = unit * work.cap + by_size
            if known > limit:
                known = limit
        elif size < SMALL_BYTES:
            self.unit_ns = unit * (UP if sample_ns > unit else DOWN)
            self._seen_ns = now_ns
        self._classes[key] = known
        return known

    def was_busy(self, elapsed_ns: int, now_ns: int) -> None:
        """A request that did not wait took `elapsed_ns`: by Little's law the sum of these is how many are under way at once."""
        self._busy_ns += elapsed_ns
        passed_ns = now_ns - self._load_since_ns
        if passed_ns >= LOAD_WINDOW_NS:
            self.load = (self.load + self._busy_ns / passed_ns) * 0.5
            self._busy_ns = 0
            self._load_since_ns = now_ns


class HandlerTimes:
    """What is known of each broker, by its address. A broker that moves is learnt anew."""

    __slots__ = ("_brokers",)

    def __init__(self) -> None:
        self._brokers: dict[tuple[str, int], BrokerHandlerTime] = {}

    def of(self, address: tuple[str, int]) -> BrokerHandlerTime:
        """What is known of the broker at `address`."""
        times = self._brokers.get(address)
        if times is None:
            if len(self._brokers) >= BROKERS_MAX:
                self._brokers.clear()
            times = self._brokers[address] = BrokerHandlerTime()
        return times

    def all(self) -> list[BrokerHandlerTime]:
        """Every broker met."""
        return list(self._brokers.values())
