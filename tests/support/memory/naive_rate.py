"""Kafka's sampled rate in a slow and plain form: the oracle of the fast one."""

from dataclasses import dataclass


@dataclass
class Sample:
    """One sample of the ring."""

    start: int
    last: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        """Start the sample anew."""
        self.start = self.last = now_ms
        self.value = 0.0


class NaiveRate:
    """Records, purges and measures at every call."""

    def __init__(self, num_samples: int, window_ms: int) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.samples: list[Sample] = []
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Record without measuring."""
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        elif now_ms - self.samples[self.current].start >= self.window_ms:
            self.current = (self.current + 1) % (self.num_samples + 1)
            if self.current == len(self.samples):
                self.samples.append(Sample(now_ms, now_ms))
            self.samples[self.current].reset(now_ms)
        sample = self.samples[self.current]
        sample.value += float(value)
        sample.last = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """Purge; return the rate per second and the window size in ms."""
        for sample in self.samples:
            if now_ms - sample.last >= self.num_samples * self.window_ms:
                sample.reset(now_ms)
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        total = 0.0
        for sample in self.samples:
            total += sample.value
        elapsed = now_ms - min(sample.start for sample in self.samples)
        full = abs(elapsed) // self.window_ms * (1 if elapsed >= 0 else -1)
        if full < self.num_samples - 1:
            elapsed += (self.num_samples - 1 - full) * self.window_ms
        window_ms = max(elapsed, 1)
        return total / (window_ms / 1000.0), window_ms
