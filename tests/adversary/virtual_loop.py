"""An asyncio event loop on virtual time: the time stands still while a callback is ready, and then jumps to the next timer."""

import asyncio
import contextlib
import heapq
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from unittest import mock

import proxy.base.clock

T = TypeVar("T")
NS_PER_S = 1_000_000_000
START_NS = 1_000 * NS_PER_S
TURNS_MAX = 20_000
"""This many turns without a pause mean that a task polls without waiting."""


class SpinningError(AssertionError):
    """The loop never becomes idle."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs real tasks, timers and protocols; all ready callbacks run at the same virtual time, however long they take in real time.

    Attributes:
        now_ns: the time; it changes only when the loop jumps to a timer.
        faults: what the exception handler received.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = self  # an event loop waits in `select`; this one does not
        self.now_ns = START_NS
        self.faults: list[dict[str, Any]] = []
        self.readers: dict[int, Callable[[], object]] = {}
        self._quiet: list[asyncio.Future[None]] = []
        self._turns = 0
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    @property
    def now_ms(self) -> int:
        """Return the time in milliseconds."""
        return self.now_ns // 1_000_000

    def time(self) -> float:
        """Return the time in seconds, in the unit of timers."""
        return self.now_ns / NS_PER_S

    def select(self, timeout: float | None) -> list[Any]:
        """Return no events. Wake those that wait for an idle loop, unless `timeout` is 0; when none waits, jump to the next timer."""
        if timeout == 0:
            self._turns += 1
            if self._turns > TURNS_MAX:
                raise SpinningError(f"no rest within {TURNS_MAX} turns at one time; ready: {list(self._ready)[:5]}")
            return []
        self._turns = 0
        if self._quiet:
            for waiter in self._quiet:
                if not waiter.done():
                    waiter.set_result(None)
            self._quiet.clear()
            return []
        assert self._scheduled, "nothing will ever happen again"
        self.now_ns = max(self.now_ns, round(self._scheduled[0].when() * NS_PER_S))
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: sockets schedule their callbacks themselves."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop does not sleep in `select`."""

    async def quiet(self) -> None:
        """Wait until no callback is ready at the present time."""
        waiter = self.create_future()
        self._quiet.append(waiter)
        await waiter

    async def until_ms(self, at_ms: int) -> None:
        """Wait until that time, and then until no callback is ready."""
        if at_ms > self.now_ms:
            await asyncio.sleep((at_ms * 1_000_000 - self.now_ns) / NS_PER_S)
        await self.quiet()

    def add_reader(self, fd: int, callback: Callable[..., object], *arguments: Any) -> None:
        """Remember the callback of a descriptor; the owner of the descriptor calls `wake_reader`."""
        self.readers[fd] = lambda: callback(*arguments)

    def remove_reader(self, fd: int) -> bool:
        """Forget the callback of a descriptor."""
        return self.readers.pop(fd, None) is not None

    def wake_reader(self, fd: int) -> None:
        """Schedule the callback of a descriptor that became readable."""
        reader = self.readers.get(fd)
        if reader is not None:
            self.call_soon(reader)

    def drop_timers(self) -> None:
        """Cancel all timers at the end of the run."""
        self._scheduled.clear()
        heapq.heapify(self._scheduled)
        self._ready.clear()


@contextlib.contextmanager
def clock_of(loop: VirtualLoop) -> Iterator[None]:
    """Let the proxy's clock show the time of `loop`, in every module that imported it."""
    real, virtual = proxy.base.clock.now_ns, lambda: loop.now_ns
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("proxy.") and getattr(module, "now_ns", None) is real  # every `from proxy.base.clock import now_ns`
    ]
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(mock.patch.object(module, "now_ns", virtual))
        yield


def run_virtual(make: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end on a new loop, with the proxy's clock on its time."""
    loop = VirtualLoop()
    try:
        with clock_of(loop):
            return loop.run_until_complete(make(loop))
    finally:
        loop.drop_timers()
        loop.close()
