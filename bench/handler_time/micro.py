"""CPU time of one request's estimate, its call included. `python -m bench.handler_time.micro`."""

import random
import time
from collections.abc import Callable, Sequence
from itertools import accumulate

from proxy.handler_time import BrokerHandlerTime, ConnectionHandlerTime, HandlerTimes, Work, shared_by, work_of
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage

REQUESTS, RUNS, WORKERS = 100_000, 15, 4
Question = tuple[Work, int, int, int]


def questions() -> list[Question]:
    """Return (work, size, forwarded, answered) of a Produce, a Metadata and a Fetch in turn, a millisecond apart, with varying answer
    times.
    """
    chance = random.Random(1)
    kinds = [(work_of(0, 1), 270), (work_of(3), 900), (work_of(1), 4_096)]
    starts = accumulate(chance.randrange(500_000, 1_500_000) for _ in range(REQUESTS))
    return [(*kinds[at % len(kinds)], start, start + chance.randrange(90_000, 400_000)) for at, start in enumerate(starts)]


def microseconds(asked: Sequence[Question], make: Callable[[], BrokerHandlerTime]) -> float:
    """Return the CPU time per estimate, the best of several runs: the call is included, the loop around it is not."""
    with_calls = min(_answer_all(asked, make()) for _ in range(RUNS))
    loop = min(_only_loop(asked) for _ in range(RUNS))
    return (with_calls - loop) / len(asked) / 1_000


def _answer_all(asked: Sequence[Question], broker: BrokerHandlerTime) -> int:
    charge = ConnectionHandlerTime(broker).charge
    began_ns = time.process_time_ns()
    for work, size, forwarded_ns, now_ns in asked:
        charge(work, size, forwarded_ns, now_ns, 0)
    return time.process_time_ns() - began_ns


def _only_loop(asked: Sequence[Question]) -> int:
    began_ns = time.process_time_ns()
    for _work, _size, _forwarded_ns, _now_ns in asked:
        pass
    return time.process_time_ns() - began_ns


def microseconds_alone() -> float:
    """Return the CPU time of an estimate in a single process."""
    return microseconds(questions(), BrokerHandlerTime)


def microseconds_shared() -> float:
    """Return the CPU time of an estimate in one of several workers."""
    return microseconds(questions(), _shared_broker)


def _shared_broker() -> BrokerHandlerTime:
    usage = SharedUsage(Segment.create(WORKERS, 64, 11, 1_000), 0)
    return HandlerTimes(shared_by(usage)).of(("127.0.0.1", 9092))


if __name__ == "__main__":
    print(f"{microseconds_alone():.2f} us per request, in one of {WORKERS} workers {microseconds_shared():.2f} us")
