"""Work in parts, each a pure function of files. They run in this process, or one per task on Spark, with the same result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

W = TypeVar("W")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Job(Generic[W, R]):
    """A kind of work.

    Attributes:
        do: does one part; a module-level function, which a task on another machine can import.
        work, result: types that can be written as JSON.
    """

    do: Callable[[W], R]
    work: type[W]
    result: Any


class Doer(Protocol):
    """Does all parts of a job, in this process or on Spark."""

    def __call__(self, job: Job[W, R], parts: Sequence[W]) -> list[R]:
        """Return the result of each part, in order."""


def do_here(job: Job[W, R], parts: Sequence[W], tell: Callable[[int], None] = lambda _done: None) -> list[R]:
    """Do all parts in this process.

    Args:
        tell: gets the number of parts that are done, before each.
    """
    done = []
    for number, part in enumerate(parts):
        tell(number)
        done.append(job.do(part))
    return done
