"""Windowed measurement: a ring of samples, and the values derived from it.

Source: Kafka 3.8 `SampledStat`, `Rate`, `WindowedSum`, `Avg`, `TokenBucket`. Times are integer milliseconds of any one clock; sums are
plain loops in list order, because `math.fsum` and, from Python 3.12 on, `sum` compensate and give other last digits.
"""

from typing import Final, NamedTuple

NEVER_MS: Final = 2**63
"""Later than any time: marks a sample in use that does not expire."""


class RingState(NamedTuple):
    """The whole state of a `SampleRing`, with which another process continues it.

    Attributes:
        num_samples, window_ms: the settings of the ring.
        values, starts_ms, lasts_ms: sum, start and last event of each slot; `values` and `lasts_ms` of the slot in use are out of date.
        current: the slot in use.
        value, start_ms, last_ms: the sample in use.
        recorded_before: everything recorded before the sample in use.
    """

    num_samples: int
    window_ms: int
    values: list[float]
    starts_ms: list[int]
    lasts_ms: list[int]
    current: int
    value: float
    start_ms: int
    last_ms: int
    recorded_before: float


class SampleRing:
    """Up to `num_samples` + 1 samples; the one in use is kept in attributes, the others in parallel lists.

    A sample is (value, start, last event). It is complete `window_ms` after its start, and obsolete `num_samples` windows after its
    last event. Completion is noticed when recording, obsolescence when measuring, both exactly when Kafka notices them.
    """

    __slots__ = (
        "_current",
        "_end_ms",
        "_last_ms",
        "_lasts",
        "_purge_ms",
        "_recorded_before",
        "_span_ms",
        "_start_ms",
        "_starts",
        "_value",
        "_values",
        "num_samples",
        "window_ms",
    )

    def __init__(self, num_samples: int, window_ms: int, created_ms: int = 0) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self._span_ms = num_samples * window_ms
        self._values: list[float] = []
        self._starts: list[int] = []
        self._lasts: list[int] = []
        self._current = 0
        self._value = 0.0
        self._start_ms = NEVER_MS
        self._last_ms = created_ms
        self._end_ms = -NEVER_MS  # the sample in use is complete, or another one obsolete, from this time on
        self._purge_ms = NEVER_MS  # when the next sample that is not in use becomes obsolete
        self._recorded_before: float = 0.0

    @property
    def span_ms(self) -> int:
        """Length of all windows together."""
        return self._span_ms

    @property
    def recorded_total(self) -> float:
        """Everything recorded since the start, un-records subtracted; never expires."""
        return self._recorded_before + self._value

    @property
    def last_record_ms(self) -> int:
        """Time of the last record, or of the creation."""
        return self._last_ms

    @property
    def state(self) -> RingState:
        """The state of this ring, which shares no list with it."""
        return RingState(
            self.num_samples,
            self.window_ms,
            self._values.copy(),
            self._starts.copy(),
            self._lasts.copy(),
            self._current,
            self._value,
            self._start_ms,
            self._last_ms,
            self._recorded_before,
        )

    def continue_from(self, state: RingState) -> None:
        """Take on the state of another ring with the same settings; every later measurement equals that of the other ring.

        Args:
            state: of a ring in which something was recorded.
        """
        self._values, self._starts, self._lasts = state.values.copy(), state.starts_ms.copy(), state.lasts_ms.copy()
        self._current, self._value = state.current, state.value
        self._start_ms, self._last_ms, self._recorded_before = state.start_ms, state.last_ms, state.recorded_before
        self._find_purge(min(self._lasts))
        self._rolled()

    def window_size_ms(self, now_ms: int) -> int:
        """Return the span that a measurement at `now_ms` divides by, at least 1 ms; changes nothing."""
        return self._peek(now_ms)[1]

    def rate(self, now_ms: int) -> float:
        """Return units per second as a measurement at `now_ms` would return them; changes no state."""
        total, window_ms = self._peek(now_ms)
        return total / (window_ms / 1_000.0)

    def purge(self, now_ms: int) -> None:
        """Reset every obsolete sample, the one in use included; an empty ring gets its first sample."""
        if not self._values:
            self._open_first(now_ms)
            return
        if now_ms - self._last_ms >= self._span_ms:
            self._recorded_before += self._value
            self._value = 0.0
            self._start_ms = self._last_ms = self._starts[self._current] = now_ms
        self._purge(now_ms)

    def live_samples(self) -> list[tuple[int, int, float]]:
        """Return (start, last event, sum) of the samples that were not obsolete at the last record, oldest first, the one in use last.

        The start of a slot that was reset is the time of its reset, but never a window before the sample in use at that time.
        """
        lasts = [self._last_ms if index == self._current else last_ms for index, last_ms in enumerate(self._lasts)]
        values = [self._value if index == self._current else value for index, value in enumerate(self._values)]
        found = sorted(zip(self._starts, lasts, values, strict=True), key=lambda sample: (sample[0], -sample[1], sample[2] == 0.0))
        kept: list[tuple[int, int, float]] = []
        for start_ms, last_ms, value in found:
            if self._last_ms - last_ms < self._span_ms and (not kept or start_ms >= kept[-1][0] + self.window_ms):
                kept.append((start_ms, last_ms, value))
        return kept

    def _add(self, amount: float, now_ms: int) -> None:
        """Kafka's `SampledStat.record`."""
        if not self._values:
            self._open_first(now_ms)
        elif now_ms - self._start_ms >= self.window_ms:
            self._roll(now_ms)
        self._value += amount  # a double, since samples begin at 0.0; an int is converted as Java converts it
        self._last_ms = now_ms

    def _open_first(self, now_ms: int) -> None:
        # a list display has no spare capacity: with very many groups most have one sample
        self._values = [0.0]
        self._starts = [now_ms]
        self._lasts = [NEVER_MS]
        self._start_ms = self._last_ms = now_ms
        self._end_ms = now_ms + self.window_ms
        self._rolled()

    def _roll(self, now_ms: int) -> None:
        """Close the sample in use and begin the next one, in a new slot or in the oldest."""
        values, starts, lasts, current = self._values, self._starts, self._lasts, self._current
        values[current] = self._value
        lasts[current] = self._last_ms
        self._recorded_before += self._value
        current = current + 1 if current < self.num_samples else 0
        if current == len(values):
            values.append(0.0)
            starts.append(now_ms)
            lasts.append(NEVER_MS)
        else:
            values[current] = 0.0
            starts[current] = now_ms
            lasts[current] = NEVER_MS
        self._current = current
        self._value = 0.0
        self._start_ms = self._last_ms = now_ms
        self._find_purge(min(lasts))
        self._rolled()

    def _rolled(self) -> None:
        """A sample began. Overridden where something depends on the closed ones."""

    def _purge(self, now_ms: int) -> None:
        """Reset obsolete samples. The sample in use is skipped: its last event is the record that led here."""
        lasts = self._lasts
        obsolete_ms = now_ms - self._span_ms
        while (oldest_ms := min(lasts)) <= obsolete_ms:
            index = lasts.index(oldest_ms)
            self._values[index] = 0.0
            self._starts[index] = lasts[index] = now_ms
        self._find_purge(oldest_ms)

    def _find_purge(self, oldest_last_ms: int) -> None:
        self._purge_ms = purge_ms = oldest_last_ms + self._span_ms
        end_ms = self._start_ms + self.window_ms
        self._end_ms = end_ms if end_ms < purge_ms else purge_ms

    def _measured_window_ms(self, now_ms: int, oldest_ms: int) -> int:
        elapsed_ms = now_ms - oldest_ms
        # Java's division truncates towards zero; only a clock that steps back makes it matter.
        full = elapsed_ms // self.window_ms if elapsed_ms >= 0 else -(-elapsed_ms // self.window_ms)
        if full < self.num_samples - 1:
            elapsed_ms += (self.num_samples - 1 - full) * self.window_ms
        return elapsed_ms if elapsed_ms > 1 else 1

    def _peek(self, now_ms: int) -> tuple[float, int]:
        """Return (sum, window size) as measured at `now_ms`, without changing a sample."""
        total = 0.0
        oldest_ms = now_ms if not self._values else NEVER_MS
        for index, value in enumerate(self._values):
            in_use = index == self._current
            if now_ms - (self._last_ms if in_use else self._lasts[index]) >= self._span_ms:
                oldest_ms = min(oldest_ms, now_ms)
                continue
            total += self._value if in_use else value
            oldest_ms = min(oldest_ms, self._starts[index])
        return total, self._measured_window_ms(now_ms, oldest_ms)

    def _copy_samples_to(self, other: "SampleRing") -> None:
        other._values = self._values.copy()
        other._starts = self._starts.copy()
        other._lasts = self._lasts.copy()
        other._current = self._current
        other._value = self._value
        other._start_ms = self._start_ms
        other._last_ms = self._last_ms
        other._end_ms = self._end_ms
        other._purge_ms = self._purge_ms


class WindowedSum(SampleRing):
    """Sum over the last windows. Source: Kafka 3.8 `WindowedSum`."""

    __slots__ = ()

    def record(self, amount: float, now_ms: int) -> None:
        """Count `amount` at `now_ms`; a negative amount takes back."""
        self._add(amount, now_ms)

    def measure(self, now_ms: int) -> float:
        """Return the sum, purging as Kafka's measurement does (a change of state)."""
        if not self._values:
            return 0.0  # a rate begins its first sample when it is measured, a sum only when something is recorded
        self.purge(now_ms)
        return self._peek(now_ms)[0]

    def peek(self, now_ms: int) -> float:
        """Return what `measure` would return, without changing state."""
        return self._peek(now_ms)[0]


class Rate(WindowedSum):
    """Units per second over the last windows. Source: Kafka 3.8 `Rate`."""

    __slots__ = ()

    def measure(self, now_ms: int) -> float:
        """Return the rate in units per second, purging as Kafka's measurement does (a change of state)."""
        self.purge(now_ms)
        return self.rate(now_ms)


class Avg:
    """Mean of the values recorded in the last windows; NaN when there are none. Source: Kafka 3.8 `Avg`.

    Kafka counts events in the samples; this class has a second ring that records 1 for each value.
    """

    __slots__ = ("_counts", "_sums")

    def __init__(self, num_samples: int = 2, window_ms: int = 30_000, created_ms: int = 0) -> None:
        self._sums = WindowedSum(num_samples, window_ms, created_ms)
        self._counts = WindowedSum(num_samples, window_ms, created_ms)

    @property
    def last_record_ms(self) -> int:
        """Time of the last record, or of the creation."""
        return self._sums.last_record_ms

    def record(self, value: float, now_ms: int) -> None:
        """Count `value` at `now_ms`."""
        self._sums.record(value, now_ms)
        self._counts.record(1.0, now_ms)

    def measure(self, now_ms: int) -> float:
        """Return the mean, purging (a change of state)."""
        return _mean(self._sums.measure(now_ms), self._counts.measure(now_ms))

    def peek(self, now_ms: int) -> float:
        """Return the mean without changing state."""
        return _mean(self._sums.peek(now_ms), self._counts.peek(now_ms))


def _mean(total: float, count: float) -> float:
    return total / count if count else float("nan")


class TokenBucket:
    """A balance that refills at `bound` per second up to a burst of all windows. Source: Kafka 3.8 `TokenBucket`.

    Starts empty at time 0: on an epoch clock the first refill fills it. On a clock that starts near 0 it does not; a caller with such
    a clock passes `last_update_ms` far enough in the past.
    """

    __slots__ = ("_last_update_ms", "_tokens", "bound", "num_samples", "window_ms")

    def __init__(self, num_samples: int, window_ms: int, bound: float, last_update_ms: int = 0) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.bound = bound
        self._tokens = 0.0
        self._last_update_ms = last_update_ms

    def record(self, permits: float, now_ms: int) -> None:
        """Take `permits`; a negative number gives back, up to the burst."""
        self._refill(now_ms)
        self._tokens = min(self._burst(), self._tokens - permits)

    def measure(self, now_ms: int) -> float:
        """Return the balance after refilling; a balance below zero is a violation."""
        self._refill(now_ms)
        return self._tokens

    @property
    def balance(self) -> tuple[float, int]:
        """The balance at the last refill, and the time of that refill in ms."""
        return self._tokens, self._last_update_ms

    @balance.setter
    def balance(self, balance: tuple[float, int]) -> None:
        self._tokens, self._last_update_ms = balance

    def peek(self, now_ms: int) -> float:
        """Return the balance as `measure` would, without changing state."""
        return self._refilled(now_ms)

    def is_full(self, now_ms: int) -> bool:
        """Whether the balance is the whole burst, as in a new bucket."""
        return self._refilled(now_ms) >= self._burst()

    def _refill(self, now_ms: int) -> None:
        self._tokens = self._refilled(now_ms)
        self._last_update_ms = now_ms

    def _refilled(self, now_ms: int) -> float:
        return min(self._burst(), self._tokens + self.bound * ((now_ms - self._last_update_ms) / 1_000.0))

    def _burst(self) -> float:
        return self.num_samples * (self.window_ms / 1_000.0) * self.bound
