"""States of workers without processes; they are queried by bytes, as real workers are."""

from collections.abc import Sequence

from proxy.observe.rows.live_rows import LiveQuery
from proxy.observe.workers.answers import WorkerAnswers
from proxy.observe.workers.many_workers import ManyWorkers
from proxy.observe.workers.messages import Question
from proxy.observe.workers.packing import unpack
from proxy.telemetry.loop_lag import LoopLag
from tests.support.memory.proxy_state import FakeState


class FakeWorkers:
    """Some workers, numbered from 1.

    Attributes:
        asked: how often the workers were asked, without the samples of the history.
        sampled: number of these.
        silent: numbers of workers that do not answer.
        control: state that exists once for all workers.
        pages: the workers' admin pages.
    """

    def __init__(self, states: Sequence[FakeState], control: FakeState | None = None) -> None:
        self._workers = {number: WorkerAnswers(state, LoopLag()) for number, state in enumerate(states, 1)}
        self.silent: set[int] = set()
        self.asked = 0
        self.sampled = 0
        self.control = control or FakeState()
        self.pages = ManyWorkers(self.control, self._ask)

    def replace(self, number: int, state: FakeState) -> None:
        """Replace a worker by a new one."""
        self._workers[number] = WorkerAnswers(state, LoopLag())

    def drop(self, number: int) -> None:
        """Remove one worker."""
        del self._workers[number]

    async def _ask(self, query: bytes) -> list[tuple[int, bytes | None]]:
        match unpack(query, Question).query:
            case LiveQuery(waited_only=True):
                self.sampled += 1
            case _:
                self.asked += 1
        return [(number, None if number in self.silent else await worker.answer(query)) for number, worker in self._workers.items()]
