"""Figures of one broker, learnt from all its connections: the cost of a small request, and of each class of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.handler_time.work import Work

NO_SAMPLE_NS: Final = 8_000
"""Answers closer than this shared a read of the socket: how long each took is not known."""
UNIT_NS: Final = 250_000.0
"""What a small request is taken to cost while nothing has been seen that could say."""
UP: Final = 1 + 0.08 * 0.1
DOWN: Final = 1 / (1 + 0.08 * 0.9)
"""Steps of a tracked 10th percentile: one up for every nine down, at equal distance. Two hundred requests of a kind find it anew."""
FORGET_AFTER_NS: Final = 1_000_000_000
FORGET_SHARE: Final = 0.02
WAITED_SHARE: Final = 0.02
SMALL_BYTES: Final = 4_096
LOAD_WINDOW_NS: Final = 20_000_000
LOAD_FORGET_NS: Final = 100_000_000
BROKERS_MAX: Final = 1_024


class BrokerHandlerTime:
    """What is known of one broker. Bounded: a class is a kind of request and the number of bits of its size.

    Attributes:
        unit_ns: charge of a small request that does not wait.
        load: requests under way at once whose work counts for how busy it is, on average over the last moments.
        logs_in: it has accepted a handshake (SASL): clients log in there, and what one asks before is no request to handlers.
    """

    __slots__ = ("_busy_ns", "_classes", "_forget_ns", "_load_due_ns", "_measured_ns", "_share", "_waited_ns", "load", "logs_in", "unit_ns")

    def __init__(self) -> None:
        self.unit_ns = UNIT_NS
        self.load = 0.0
        self.logs_in = False
        self._forget_ns = 0
        self._classes: dict[int, float] = {}
        self._busy_ns = 0  # since the load was measured last: time of answers that count for it, and of the others
        self._waited_ns = 0
        self._measured_ns = 0  # and all before
        self._load_due_ns = 0
        self._share = 1.0

    @property
    def elapsed_ns(self) -> int:
        """The time that answers took, waiting included."""
        return self._measured_ns + self._busy_ns + self._waited_ns

    def estimate(self, work: Work, size: int) -> float:
        """What a request of this kind and size costs as far as is known, in nanoseconds; nothing is learnt."""
        small = self.unit_ns + size * work.ns_per_byte
        known = self._classes.get(work.key + size.bit_length(), small)
        if work.cap:
            limit = self.unit_ns * work.cap + size * work.ns_per_byte
            return known if known < limit else limit
        return known

    def charge(self, work: Work, size: int, elapsed_ns: int, passed_ns: float, now_ns: int) -> float:
        """Learn from how long an answer took; return what to charge for it, in nanoseconds.

        All in one place, since every answer comes by here.

        Args:
            elapsed_ns: since its request left, or since the answer before it on its connection.
            passed_ns: what of that may be work when nothing else is under way.
        """
        if work.loads:  # `saw`, in place
            self._busy_ns += elapsed_ns
        else:
            self._waited_ns += elapsed_ns
        if now_ns >= self._load_due_ns:
            self._measure_load(now_ns)
        spent = passed_ns * self._share
        unit = self.unit_ns
        key = work.key + size.bit_length()
        known = self._classes.get(key)
        if known is None:
            known = unit + size * work.ns_per_byte
        if spent >= NO_SAMPLE_NS:
            known *= UP if spent > known else DOWN
            if cap := work.cap:
                limit = unit * cap + size * work.ns_per_byte
                if now_ns > self._forget_ns:  # nothing to go by: what a busy time taught holds no longer
                    self.unit_ns = unit + (UNIT_NS * self._share - unit) * FORGET_SHARE
                if spent > limit:
                    known += (limit - known) * WAITED_SHARE
                if known > limit:
                    known = limit
            elif size < SMALL_BYTES:
                self.unit_ns = unit * (UP if spent > unit else DOWN)
                self._forget_ns = now_ns + FORGET_AFTER_NS
            self._classes[key] = known
        elif spent < 0.0:
            spent = 0.0
        return spent if spent < known else known

    def saw(self, work: Work, elapsed_ns: int, now_ns: int) -> None:
        """An answer took so long; nothing is learnt from it but how busy the broker is."""
        if work.loads:
            self._busy_ns += elapsed_ns
        else:
            self._waited_ns += elapsed_ns
        if now_ns >= self._load_due_ns:
            self._measure_load(now_ns)

    def share(self, passed_ns: float) -> float:
        """What of such a time threads can have worked for one request, as busy as the broker is."""
        return passed_ns * self._share if passed_ns > 0.0 else 0.0

    def _measure_load(self, now_ns: int) -> None:
        """Find anew how many requests are under way at once."""
        self._use_load(self._load_of(self._busy_ns, now_ns))
        self._measured_ns += self._busy_ns + self._waited_ns
        self._busy_ns = self._waited_ns = 0
        self._load_due_ns = now_ns + LOAD_WINDOW_NS

    def _load_of(self, busy_ns: int, now_ns: int) -> float:
        """By Little's law the time of all that did not wait, by the time that passed, is how many were under way at once."""
        passed_ns = now_ns - self._load_due_ns + LOAD_WINDOW_NS
        load = busy_ns / passed_ns
        return (self.load + load) * 0.5 if passed_ns < LOAD_FORGET_NS else load

    def _use_load(self, load: float) -> None:
        self.load = load
        self._share = 1.0 / load if load > 1.0 else 1.0


Address = tuple[str, int]
MakeBrokerHandlerTime = Callable[[Address], BrokerHandlerTime]


def alone(_address: Address) -> BrokerHandlerTime:
    """Return what a process learns of a broker by itself."""
    return BrokerHandlerTime()


class HandlerTimes:
    """What is known of each broker, by its address. A broker that moves is learnt anew.

    Args:
        make: makes what is known of one.
    """

    __slots__ = ("_brokers", "_forgotten_ns", "_make")

    def __init__(self, make: MakeBrokerHandlerTime = alone) -> None:
        self._make = make
        self._brokers: dict[Address, BrokerHandlerTime] = {}
        self._forgotten_ns = 0

    @property
    def elapsed_ns(self) -> int:
        """The time that answers of all brokers took so far, waiting included."""
        return self._forgotten_ns + sum(times.elapsed_ns for times in self._brokers.values())

    def of(self, address: Address) -> BrokerHandlerTime:
        """What is known of the broker at `address`."""
        times = self._brokers.get(address)
        if times is None:
            if len(self._brokers) >= BROKERS_MAX:
                self._forgotten_ns = self.elapsed_ns
                self._brokers.clear()
            times = self._brokers[address] = self._make(address)
        return times
