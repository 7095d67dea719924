"""Fetches under the schedule of ADR 12: what to reserve for an answer whose size is not known yet."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from bench.paced.schedule import Reservation, ReservingSchedule
from bench.paced.simulated import JITTER_NS, RTT_NS, STEADY_S
from quota.paced_schedule import SECOND_NS, PacedSchedule, cost_ns

BOUND: Final = 2e6
BURST_NS: Final = SECOND_NS
REQUESTED: Final = 50 * 1024 * 1024
"""`max_bytes` of a consumer with the defaults of Kafka's Java client."""
POLL_NS: Final = SECOND_NS // 2
"""How long a broker without records keeps a fetch, by the same defaults."""
EMPTY_BYTES: Final = 100
Sizes = Callable[[random.Random], int]


class Consumer:
    """A consumer with one fetch in flight.

    Attributes:
        sizes: the bytes that the broker has for its next fetch; at most `EMPTY_BYTES`: none, so the broker keeps the fetch.
        last_bytes: size of its last answer; None: there was none.
        reserved: reservation of its fetch in flight, and the bytes that it will return.
    """

    __slots__ = ("last_bytes", "reserved", "sizes")

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.last_bytes: int | None = None
        self.reserved: tuple[Reservation, int] | None = None


class Grant(NamedTuple):
    """The most that a fetch may return, and the bytes that it reserves."""

    most: int
    reserved: int


def _most(consumer: Consumer, consumers: int) -> Grant:
    return Grant(REQUESTED, REQUESTED)


def _share(consumer: Consumer, consumers: int) -> Grant:
    most = int(BOUND * BURST_NS / SECOND_NS / (consumers + 1))
    return Grant(most, most)


def _expected(consumer: Consumer, consumers: int) -> Grant:
    most = _share(consumer, consumers).most
    return Grant(most, most if consumer.last_bytes is None else min(most, consumer.last_bytes))


CHOSEN: Final = "a share of the burst, charged at its answer"
CORRECTED: Final = "a share of the burst, charged when it goes"
RESERVES: Final = {
    "what is requested, charged when it goes": (_most, True),
    CHOSEN: (_share, False),
    CORRECTED: (_share, True),
    "the last answer, a share of the burst at most, charged when it goes": (_expected, True),
}
"""How much a fetch reserves, and whether the schedule is charged when it goes (and corrected at its answer) or at its answer."""


class Load(NamedTuple):
    """Consumers of one group."""

    name: str
    consumers: Sequence[Sizes]


def _fixed(size: int) -> Sizes:
    return lambda _random: size


LOADS: Final = (
    Load("1 of 100 kB", [_fixed(100_000)]),
    Load("16 of 100 kB", [_fixed(100_000)] * 16),
    Load("16 of 1 MB", [_fixed(1_000_000)] * 16),
    Load("16 of 10 kB or 1 MB by chance", [lambda by_chance: by_chance.choice([10_000, 1_000_000])] * 16),
    Load("1 of 100 kB, 15 that wait for records", [_fixed(100_000), *[_fixed(EMPTY_BYTES)] * 15]),
    Load("1 of 1 MB, 63 that wait for records", [_fixed(1_000_000), *[_fixed(EMPTY_BYTES)] * 63]),
)


class FetchFigures(NamedTuple):
    """Figures of a run.

    Attributes:
        long_run: bytes from second 10 on, over bound x time.
        beyond_ms: the most that requests passed beyond bound x (span + burst) in any span, the last one of the span not counted, in
            milliseconds of the bound.
    """

    long_run: float
    beyond_ms: float


class _ChargedFirst:
    """A fetch is charged when it goes, and corrected at its answer."""

    def __init__(self) -> None:
        self._schedule = ReservingSchedule(BURST_NS)

    def wait_ns(self, cost: int, now_ns: int) -> int:
        """Return how long a fetch that reserves `cost` has to wait."""
        return self._schedule.wait_ns(now_ns)

    def goes(self, cost: int, now_ns: int) -> Reservation:
        """Charge a fetch."""
        return self._schedule.reserve(cost, now_ns)

    def answered(self, reservation: Reservation, cost: int, now_ns: int) -> None:
        """Correct it."""
        self._schedule.correct(reservation, cost)


class _ChargedAtAnswer:
    """What fetches in flight have reserved counts when the next one goes; the schedule is charged at the answer."""

    def __init__(self) -> None:
        self._schedule = PacedSchedule(BURST_NS)
        self._reserved_ns = 0

    def wait_ns(self, cost: int, now_ns: int) -> int:
        """Return how long a fetch that reserves `cost` has to wait, unless an answer makes room before."""
        return self._schedule.wait_ns(now_ns - self._reserved_ns - min(cost, BURST_NS))

    def goes(self, cost: int, now_ns: int) -> Reservation:
        """Count a fetch."""
        self._reserved_ns += cost
        return Reservation(cost)

    def answered(self, reservation: Reservation, cost: int, now_ns: int) -> None:
        """Charge it."""
        self._reserved_ns -= reservation.cost_ns
        self._schedule.charge(cost, now_ns)


def fetch_run(load: Load, reserve: str, seconds: int, seed: int = 1) -> FetchFigures:
    """Let the consumers of a load fetch for `seconds`."""
    chance, order = random.Random(seed), 0
    grant, is_charged_first = RESERVES[reserve]
    admission, known = _ChargedFirst() if is_charged_first else _ChargedAtAnswer(), PacedSchedule(BURST_NS)
    events: list[tuple[int, int, Consumer | None]] = []
    waiting: deque[Consumer] = deque()
    steady_bytes, beyond_ns, wake_ns = 0, 0, -1

    def passes(size: int, now_ns: int) -> None:
        nonlocal beyond_ns, steady_bytes
        beyond_ns = max(beyond_ns, known.lead_ns(now_ns) - BURST_NS)
        known.charge(cost_ns(size, BOUND), now_ns)
        steady_bytes += size if now_ns >= STEADY_S * SECOND_NS else 0

    for sizes in load.consumers:
        order += 1
        heappush(events, (chance.randrange(RTT_NS), order, Consumer(sizes)))
    while events[0][0] < seconds * SECOND_NS:
        now_ns, _, consumer = heappop(events)
        if consumer is not None:
            if consumer.reserved is not None:
                reservation, size = consumer.reserved
                admission.answered(reservation, cost_ns(size, BOUND), now_ns)
                if not is_charged_first:
                    passes(size, now_ns)
                consumer.last_bytes, consumer.reserved = size, None
            waiting.append(consumer)
        while waiting:
            granted = grant(waiting[0], len(load.consumers))
            cost = cost_ns(granted.reserved, BOUND)
            if admission.wait_ns(cost, now_ns):
                break
            first = waiting.popleft()
            size = min(first.sizes(chance), granted.most)
            if is_charged_first:
                passes(size, now_ns)
            first.reserved = admission.goes(cost, now_ns), size
            order += 1
            kept_ns = POLL_NS if size <= EMPTY_BYTES else 0
            heappush(events, (now_ns + RTT_NS + chance.randrange(JITTER_NS) + kept_ns, order, first))
        due_ns = now_ns + (admission.wait_ns(cost, now_ns) if waiting else 0)
        if waiting and not now_ns < wake_ns <= due_ns:
            order, wake_ns = order + 1, due_ns
            heappush(events, (wake_ns, order, None))
    return FetchFigures(steady_bytes / BOUND / (seconds - STEADY_S), beyond_ns / 1e6)


def fetches(seconds: int) -> Iterator[tuple[Load, str, FetchFigures]]:
    """Yield the figures of each load and each way to reserve."""
    for load in LOADS:
        for reserve in RESERVES:
            yield load, reserve, fetch_run(load, reserve, seconds)
