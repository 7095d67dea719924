"""The timers of workers on virtual time: each publishes the usage of noted groups when it is due."""

from collections.abc import Iterable
from functools import partial
from heapq import heappop, heappush

from proxy.shared_usage.shared_usage import SharedUsage


class Timers:
    """Publishes the usage of workers as their event loops do, when `run` is called."""

    def __init__(self, usages: Iterable[SharedUsage]) -> None:
        self._usages = list(usages)
        self._now_ms = 0
        self._due: list[tuple[int, int, int]] = []
        for number, usage in enumerate(self._usages):
            usage.on_unpublished = partial(self._note, number)

    def run(self, now_ms: int) -> None:
        """Let time pass up to `now_ms`."""
        due = self._due
        while due and due[0][0] <= now_ms:
            self._now_ms, number, within_ms = heappop(due)
            self._usages[number].publish_noted(within_ms, self._now_ms)
        self._now_ms = now_ms

    def _note(self, number: int, within_ms: int) -> None:
        heappush(self._due, (self._now_ms + within_ms, number, within_ms))
