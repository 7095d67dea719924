"""Decides whether an accepted connection is admitted now, later or not at all. Does no I/O and never waits.

Source: Kafka 3.8 `SocketServer.ConnectionQuotas` (KIP-402, KIP-612). Where Kafka's acceptor thread waits, a decision contains the
time to wait until, and whether to wait for a slot too. The caller waits and then calls `admit`:

    decision = quotas.arrive(listener, now_ms)      # once for each connection: it is counted in the rates from here on
    ... wait until decision.until_ms, and until quotas.has_slot(listener) ...
    quotas.take_slot(listener)
    decision = quotas.admit(listener, key, now_ms)  # as soon as the client's address is known
    ... accepted: serve, and `leave` when it ends; refused: the slot and the counts have been given back ...
"""

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

from quota.connections.connection_rate import UNLIMITED_CONNECTIONS, ConnectionRate, RateObserver
from quota.connections.elsewhere import Elsewhere
from quota.connections.ip_connections import CountObserver, IpConnections, IpKey
from quota.sensor import Avg, Rate

AVERAGE_SAMPLES: Final = 2
AVERAGE_WINDOW_MS: Final = 30_000


class Outcome(enum.Enum):
    """Result of a decision on a connection."""

    ACCEPTED = "accepted"
    WAIT = "wait"
    TOO_MANY_FROM_IP = "too_many_from_ip"
    IP_THROTTLED = "ip_throttled"


class Decision(NamedTuple):
    """A decision with its parameters.

    Attributes:
        until_ms: WAIT: the earliest time to go on, which may be now.
        for_slot: WAIT: no slot was free at the time of the decision.
        delay_ms: WAIT: the delay by the rates; IP_THROTTLED: keep the socket unread for this time, then close it.
        limit: TOO_MANY_FROM_IP: the maximum number of connections of the address.
    """

    outcome: Outcome
    until_ms: int = 0
    for_slot: bool = False
    delay_ms: int = 0
    limit: int = 0


ACCEPTED: Final = Decision(Outcome.ACCEPTED)


class ListenerQuota:
    """One listener with all its ports: limits, rate, number of connections, and how long connections were delayed."""

    __slots__ = (
        "_blocked",
        "blocked_ms",
        "connections",
        "ip_throttle_time",
        "max_connections",
        "name",
        "protected",
        "rate",
        "throttle_time",
    )

    def __init__(self, name: str, rate: ConnectionRate) -> None:
        self.name = name
        self.rate = rate
        self.max_connections = UNLIMITED_CONNECTIONS
        self.protected = False
        self.connections = 0
        self.throttle_time = Avg(AVERAGE_SAMPLES, AVERAGE_WINDOW_MS)
        self.ip_throttle_time = Avg(AVERAGE_SAMPLES, AVERAGE_WINDOW_MS)
        self.blocked_ms = 0
        self._blocked = Rate(AVERAGE_SAMPLES, AVERAGE_WINDOW_MS)

    def record_blocked(self, blocked_ms: int, now_ms: int) -> None:
        """Count time in which this listener accepted no connection because one was delayed."""
        self.blocked_ms += blocked_ms
        self._blocked.record(blocked_ms, now_ms)

    def blocked_ratio(self, now_ms: int, blocked_since_ms: int | None = None) -> float:
        """Return the share of the last 30 to 60 s in which it was blocked, 0 to 1; a delay that still lasts counts from its beginning."""
        lasting_ms = 0 if blocked_since_ms is None else now_ms - blocked_since_ms
        window_ms = self._blocked.window_size_ms(now_ms)
        return min(1.0, (self._blocked.peek(now_ms) + lasting_ms) / window_ms)


class ConnectionQuotas:
    """Counts and rates of the process, of each listener and of each address.

    Attributes:
        total: connections that hold a slot.
        max_connections: limit of the process, for every listener that is not protected.
        broker_rate: connections per second of the process, without those of a protected listener.
        ips: counts, rates and limits of addresses.
    """

    def __init__(self, listeners: Iterable[str], *, protected: str | None = None, num_samples: int = 11, window_ms: int = 1_000) -> None:
        self._num_samples = num_samples
        self._window_ms = window_ms
        self.total = 0
        self.max_connections = UNLIMITED_CONNECTIONS
        self.broker_rate = self._new_rate()
        self.listeners = {name: ListenerQuota(name, self._new_rate()) for name in listeners}
        self.ips = IpConnections(num_samples, window_ms)
        self._observer: RateObserver | None = None
        self._count_observer: CountObserver | None = None
        self._elsewhere: Elsewhere | None = None
        self.protect(protected)

    def _new_rate(self) -> ConnectionRate:
        return ConnectionRate(UNLIMITED_CONNECTIONS, self._num_samples, self._window_ms)

    def observe(self, observer: RateObserver) -> None:
        """Report every later decision of a rate to `observer`."""
        self._observer = self.ips.observer = observer

    def share(self, elsewhere: Elsewhere) -> None:
        """Count rates and open connections of addresses together with other processes."""
        self._elsewhere = self.ips.elsewhere = elsewhere

    def observe_counts(self, observer: CountObserver | None) -> None:
        """Report every later change of a count of open connections to `observer`; None: to nobody any more."""
        self._count_observer = self.ips.count_observer = observer

    # Limits

    def protect(self, protected: str | None) -> None:
        """Exempt a listener from the limits of the process. The only listener is not exempt."""
        for listener in self.listeners.values():
            listener.protected = listener.name == protected and len(self.listeners) > 1

    def update_process(self, max_connections: int, rate: int) -> None:
        """Set the limits of the process. Those of the listeners stay unchanged."""
        self.max_connections = max_connections
        self.broker_rate.bound = rate

    def update_listener(self, name: str, max_connections: int, rate: int) -> None:
        """Set the limits of a listener; a listener without limits of its own has those of the process."""
        listener = self.listeners[name]
        listener.max_connections = max_connections
        listener.rate.bound = rate

    # One connection

    def arrive(self, listener: ListenerQuota, now_ms: int, *, counts: bool = True) -> Decision:
        """Count a connection in the rates; return ACCEPTED when it need not wait, or WAIT.

        Args:
            counts: False: rates are switched off for this connection, so that it can only wait for a slot.
        """
        if not counts:
            return ACCEPTED if self.has_slot(listener) else Decision(Outcome.WAIT, now_ms, for_slot=True)
        process_ms = 0 if listener.protected else self.broker_rate.record_one(now_ms)
        listener_ms = listener.rate.record_one(now_ms)
        throttle_ms = max(process_ms, listener_ms)
        observer = self._observer
        if observer is not None:
            if not listener.protected:
                observer.recorded(self.broker_rate, process_ms, throttle_ms, now_ms)
            observer.recorded(listener.rate, listener_ms, throttle_ms, now_ms)
        self._tell_elsewhere(listener, 1)
        if throttle_ms > 0:
            listener.throttle_time.record(throttle_ms, now_ms)
        elif self.has_slot(listener):
            return ACCEPTED
        return Decision(Outcome.WAIT, now_ms + throttle_ms, not self.has_slot(listener), throttle_ms)

    def has_slot(self, listener: ListenerQuota) -> bool:
        """Return whether one more connection fits the limits of this listener and the process."""
        return listener.connections < listener.max_connections and (listener.protected or self.total < self.max_connections)

    def take_slot(self, listener: ListenerQuota) -> None:
        """Count a connection of this listener, even when no slot is free."""
        self.change_slots(listener.name, 1)

    def admit(self, listener: ListenerQuota, key: IpKey, now_ms: int, *, counts: bool = True, was_counted: bool = True) -> Decision:
        """Decide by address on a connection that holds a slot. Unless the result is ACCEPTED, its slot and its counts are given back.

        Args:
            counts: False: the rate of its address is switched off.
            was_counted: whether `arrive` counted it in the rates of process and listener.
        """
        ips = self.ips
        throttle_ms = ips.record(key, now_ms) if counts else 0
        if throttle_ms > 0:
            listener.ip_throttle_time.record(throttle_ms, now_ms)
            if was_counted:
                self._take_back(listener, now_ms)
            self.give_slot(listener)
            return Decision(Outcome.IP_THROTTLED, delay_ms=throttle_ms)
        limit = ips.max_of(key[1])
        if ips.enter(key) + ips.count_elsewhere(key, now_ms) > limit:
            self.leave(listener, key)
            return Decision(Outcome.TOO_MANY_FROM_IP, limit=limit)
        return ACCEPTED

    def _take_back(self, listener: ListenerQuota, now_ms: int) -> None:
        rates = (listener.rate,) if listener.protected else (self.broker_rate, listener.rate)
        for rate in rates:
            rate.take_back(now_ms)
            if self._observer is not None:
                self._observer.taken_back(rate, now_ms)
        self._tell_elsewhere(listener, -1)

    def _tell_elsewhere(self, listener: ListenerQuota, change: int) -> None:
        """Report what was counted in the rates of process and listener; a rate without a bound limits nobody."""
        if self._elsewhere is None:
            return
        if not listener.protected and self.broker_rate.bound < UNLIMITED_CONNECTIONS:
            self._elsewhere.rate_counted(None, change)
        if listener.rate.bound < UNLIMITED_CONNECTIONS:
            self._elsewhere.rate_counted(listener.name, change)

    def record_elsewhere(self, listener: str | None, connections: int, now_ms: int) -> None:
        """Record connections that another process counted in the rate of a listener, or of the process (None), without a check."""
        rate = self.broker_rate if listener is None else self.listeners[listener].rate
        time_ms = rate.count_elsewhere(connections, now_ms)
        if self._observer is not None:
            self._observer.counted_elsewhere(rate, connections, time_ms)

    def leave(self, listener: ListenerQuota, key: IpKey) -> int:
        """Remove an accepted connection that has ended; return how many its address still has.

        Raises:
            QuotaError: no connection of this address is counted.
        """
        left = self.ips.leave(key)
        self.give_slot(listener)
        return left

    def give_slot(self, listener: ListenerQuota) -> None:
        """Free the slot of a connection that was never accepted."""
        self.change_slots(listener.name, -1)

    def change_slots(self, listener: str, change: int) -> None:
        """Count `change` connections of the listener of this name, of whatever process; a listener that is not known has no limit."""
        self.total += change
        known = self.listeners.get(listener)
        if known is not None:
            known.connections += change
        if self._count_observer is not None:
            self._count_observer.slots_changed(listener, change)

    @property
    def exceeds_max_connections(self) -> bool:
        """Whether more connections are open than the limit, so that one of a listener that is not protected has to be closed."""
        return self.total > self.max_connections
