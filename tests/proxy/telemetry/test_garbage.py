"""Garbage collections are timed, and long ones are reported."""

import gc
from collections.abc import Iterator

import pytest

from proxy.telemetry.counters import Counters
from proxy.telemetry.garbage import THRESHOLDS, GarbageWatch

MS = 1_000_000


class Watched:
    """A garbage watch with a clock that the test sets, and its reports."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.counters = Counters()
        self.reported: list[tuple[int, float]] = []
        self.watch = GarbageWatch(
            self.counters, lambda generation, took_ms: self.reported.append((generation, took_ms)), lambda: self.now_ns
        )

    def look(self, took_ns: int, generation: int = 2) -> None:
        """Simulate a garbage collection that takes this long."""
        self.watch.note("start", {"generation": generation})
        self.now_ns += took_ns
        self.watch.note("stop", {"generation": generation})


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Yield a watch, and restore the settings of the garbage collector afterwards."""
    before = gc.get_threshold()
    yield Watched()
    gc.set_threshold(*before)
    gc.unfreeze()


def test_long_looks_are_reported_once_and_later(watched: Watched) -> None:
    """Collections of 20 ms and more are counted and reported once, outside the collector."""
    watched.look(19 * MS)
    watched.look(20 * MS, generation=1)
    assert (watched.counters.gc_ns, watched.counters.gc_long) == (39 * MS, 1)
    assert watched.reported == []
    watched.watch.report()
    watched.watch.report()
    assert watched.reported == [(1, 20.0)]


def test_the_collector_is_frozen_timed_and_left_alone_again(watched: Watched) -> None:
    """Living objects are frozen, collections are rarer and timed from the start on, and not timed after the stop."""
    watched.watch.start()
    try:
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == THRESHOLDS
        gc.collect()
        assert watched.watch.note in gc.callbacks
    finally:
        watched.watch.stop()
    assert watched.watch.note not in gc.callbacks
