"""The model of one broker: its load, and the cost of a small request and of each class of requests, estimated from all connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.handler_time.work import Work

NO_SAMPLE_NS: Final = 8_000
"""Minimum duration that is used as a sample: responses closer together came in one read, so their durations are not known."""
UNIT_NS: Final = 250_000.0
"""Cost of a small request while there is no sample, in nanoseconds."""
UP: Final = 1 + 0.08 * 0.1
DOWN: Final = 1 / (1 + 0.08 * 0.9)
"""Factors that track the 10th percentile of samples: one sample above it outweighs nine below. It converges in about 200 requests."""
FORGET_AFTER_NS: Final = 1_000_000_000
DECAY_SHARE: Final = 0.02
WAITED_SHARE: Final = 0.02
SMALL_BYTES: Final = 4_096
LOAD_WINDOW_NS: Final = 20_000_000
LOAD_FORGET_NS: Final = 100_000_000
BROKERS_MAX: Final = 1_024


class BrokerHandlerTime:
    """The model of one broker. Its size is bounded: a class is a kind of request and the number of bits of its size.

    Attributes:
        unit_ns: cost of a small request that does not wait, in nanoseconds.
        load: recent average number of concurrent requests, of those with `Work.loads`.
        logs_in: whether the broker has accepted a SASL handshake: then request handlers do not serve the requests before a login.
    """

    __slots__ = ("_busy_ns", "_classes", "_forget_ns", "_load_due_ns", "_measured_ns", "_share", "_waited_ns", "load", "logs_in", "unit_ns")

    def __init__(self) -> None:
        self.unit_ns = UNIT_NS
        self.load = 0.0
        self.logs_in = False
        self._forget_ns = 0
        self._classes: dict[int, float] = {}
        self._busy_ns = 0  # durations since the last measurement of the load: of responses that count for it, and of the others
        self._waited_ns = 0
        self._measured_ns = 0  # all earlier durations
        self._load_due_ns = 0
        self._share = 1.0

    @property
    def elapsed_ns(self) -> int:
        """Sum of the durations of all responses in nanoseconds, waits included."""
        return self._measured_ns + self._busy_ns + self._waited_ns

    def estimate(self, work: Work, size: int) -> float:
        """Return the estimated cost of a request in nanoseconds, without changing the model; `size` is in bytes."""
        small = self.unit_ns + size * work.ns_per_byte
        known = self._classes.get(work.key + size.bit_length(), small)
        if work.cap:
            limit = self.unit_ns * work.cap + size * work.ns_per_byte
            return known if known < limit else limit
        return known

    def charge(self, work: Work, size: int, elapsed_ns: int, passed_ns: float, now_ns: int) -> float:
        """Update the model with the duration of a response; return the time to charge, in nanoseconds.

        The code is inlined, since it runs for every response.

        Args:
            size: bytes of the request for Produce, of the response otherwise.
            elapsed_ns: duration since the request was forwarded, or since the previous response of the connection.
            passed_ns: upper bound of the handler time within it while the broker serves no other request.
            now_ns: time of the response, monotonic.
        """
        if work.loads:  # `saw`, inlined
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
                if now_ns > self._forget_ns:  # without recent samples the cost returns to the default
                    self.unit_ns = unit + (UNIT_NS * self._share - unit) * DECAY_SHARE
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
        """Count the duration of a response for the load only, since its handler time is not known."""
        if work.loads:
            self._busy_ns += elapsed_ns
        else:
            self._waited_ns += elapsed_ns
        if now_ns >= self._load_due_ns:
            self._measure_load(now_ns)

    def share(self, passed_ns: float) -> float:
        """Return the handler time that one request can have had within `passed_ns` at the current load, in nanoseconds."""
        return passed_ns * self._share if passed_ns > 0.0 else 0.0

    def _measure_load(self, now_ns: int) -> None:
        """Measure the load over the time since the last measurement."""
        self._use_load(self._load_of(self._busy_ns, now_ns))
        self._measured_ns += self._busy_ns + self._waited_ns
        self._busy_ns = self._waited_ns = 0
        self._load_due_ns = now_ns + LOAD_WINDOW_NS

    def _load_of(self, busy_ns: int, now_ns: int) -> float:
        """Return the number of concurrent requests by Little's law: the sum of their durations divided by the time that passed."""
        passed_ns = now_ns - self._load_due_ns + LOAD_WINDOW_NS
        load = busy_ns / passed_ns
        return (self.load + load) * 0.5 if passed_ns < LOAD_FORGET_NS else load

    def _use_load(self, load: float) -> None:
        self.load = load
        self._share = 1.0 / load if load > 1.0 else 1.0


Address = tuple[str, int]
MakeBrokerHandlerTime = Callable[[Address], BrokerHandlerTime]


def alone(_address: Address) -> BrokerHandlerTime:
    """Return a new model of a broker that one process updates alone."""
    return BrokerHandlerTime()


class HandlerTimes:
    """The models of brokers by address. A broker with a new address gets a new model.

    Args:
        make: creates the model of a broker.
    """

    __slots__ = ("_brokers", "_forgotten_ns", "_make")

    def __init__(self, make: MakeBrokerHandlerTime = alone) -> None:
        self._make = make
        self._brokers: dict[Address, BrokerHandlerTime] = {}
        self._forgotten_ns = 0

    @property
    def elapsed_ns(self) -> int:
        """Sum of the durations of all brokers' responses in nanoseconds, waits included."""
        return self._forgotten_ns + sum(times.elapsed_ns for times in self._brokers.values())

    def of(self, address: Address) -> BrokerHandlerTime:
        """Return the model of the broker at `address`; it is created at first use. Above `BROKERS_MAX` brokers all models start again."""
        times = self._brokers.get(address)
        if times is None:
            if len(self._brokers) >= BROKERS_MAX:
                self._forgotten_ns = self.elapsed_ns
                self._brokers.clear()
            times = self._brokers[address] = self._make(address)
        return times
