"""Jobs of independent parts, each a pure function of files. They run in this process or as Spark tasks, with the same result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from metering_format.manifest import Manifest


class Part(Protocol):
    """What a part of a job reads: the files of these manifests below a directory, which is an absolute path or a URL."""

    @property
    def directory(self) -> str:
        """The directory."""

    @property
    def manifests(self) -> Sequence[Manifest]:
        """The manifests."""


W = TypeVar("W", bound=Part)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Job(Generic[W, R]):
    """A kind of work.

    Attributes:
        do: processes one part. It is a module-level function, so that a task on another machine can import it.
        work, result: types of the argument and the result of `do`; msgspec encodes them as JSON.
    """

    do: Callable[[W], R]
    work: type[W]
    result: Any


class Executor(Protocol):
    """Executes all parts of a job, in this process or on Spark."""

    def __call__(self, job: Job[W, R], parts: Sequence[W]) -> list[R]:
        """Return the result of each part, in the order of `parts`."""


def run_local(job: Job[W, R], parts: Sequence[W], report: Callable[[int], None] = lambda _done: None) -> list[R]:
    """Execute all parts in this process, and return their results in order.

    Args:
        report: called before each part with the number of finished parts.
    """
    done = []
    for number, part in enumerate(parts):
        report(number)
        done.append(job.do(part))
    return done
