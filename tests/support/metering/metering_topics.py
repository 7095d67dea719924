"""Half an hour of created and deleted topics, as a proxy meters it; the input of examples of `recommend`.

`python -m tests.support.metering.metering_topics DIR` writes it. No code of the proxy is used; `quota` decides.
"""

import heapq
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from metering_format.event_kinds import REFUSED
from tests.support.metering.metering_buckets import START_MS, Buckets, write_buckets

MINUTES = 30
FILE_SET_MS = 10 * 60_000


@dataclass(frozen=True)
class Maker:
    """A client that requests `topics` of `partitions` at once, every `pause_ms`; a way other than `strict` is one request, charged
    whole.
    """

    client_id: str
    bound: float
    topics: int
    partitions: int
    pause_ms: int
    way: str = "strict"

    def ask(self, buckets: Buckets, ref: int, left: int, dice: random.Random) -> tuple[int, int]:
        """Request the remaining topics; return when to request again, in ms from now, and for how many topics."""
        if self.way == "permissive":
            return buckets.step(ref, left * self.partitions, self.way) + self._pause_ms(dice), self.topics
        for asked in range(left):
            wait_ms = buckets.step(ref, self.partitions, self.way)
            if buckets.rows[-1]["kind"] == REFUSED:  # the client retries this topic and those after it
                return max(wait_ms, 1), left - asked
        return self._pause_ms(dice), self.topics

    def _pause_ms(self, dice: random.Random) -> int:
        return int(self.pause_ms * dice.uniform(0.5, 1.5))


def cast() -> list[Maker]:
    """Return deployments in bursts under a quota that they never reach, tests that their quota slows down, and an old tool."""
    return [
        Maker("deployer", 1_000.0, 14, 12, 75_000),
        Maker("tests", 2.0, 3, 8, 4_000),
        Maker("old-tool", 4.0, 2, 3, 8_000, "permissive"),
    ]


def write_topics(directory: Path, *, minutes: int = MINUTES, seed: int = 7) -> Path:
    """Write one run, a file set for every ten minutes; return the directory."""
    makers = cast()
    buckets = Buckets([maker.bound for maker in makers], client_ids=[maker.client_id for maker in makers])
    course = _course(buckets, makers, random.Random(seed))

    def batch(buckets: Buckets) -> None:
        end_ms = min(buckets.now_ms // FILE_SET_MS * FILE_SET_MS + FILE_SET_MS, START_MS + minutes * 60_000)
        while next(course) < end_ms:
            pass

    return write_buckets(directory, buckets, [batch] * -(-minutes * 60_000 // FILE_SET_MS))


def _course(buckets: Buckets, makers: list[Maker], dice: random.Random) -> Iterator[int]:
    """Let the clients send their requests in order of time; yield the times."""
    due = [(START_MS + 900 * ref, ref, maker.topics) for ref, maker in enumerate(makers)]
    while True:
        buckets.now_ms, ref, left = heapq.heappop(due)
        buckets.connection = ref + 1
        later_ms, left = makers[ref].ask(buckets, ref, left, dice)
        heapq.heappush(due, (buckets.now_ms + later_ms, ref, left))
        yield buckets.now_ms


if __name__ == "__main__":
    write_topics(Path(sys.argv[1]))
    json.dump({"directory": sys.argv[1]}, sys.stdout)
