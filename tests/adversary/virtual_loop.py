"""An asyncio event loop whose time is a number: it stands while anything can run, and then jumps to the next timer."""

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
"""So many turns without a pause mean that something waits by spinning."""


class SpinningError(AssertionError):
    """The loop never comes to rest."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs real tasks, timers and protocols; what is ready runs at the present time, however long that takes by a real clock.

    Attributes:
        now_ns: the time; only a timer moves it.
        faults: what the exception handler received.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = self  # `select` is where an event loop waits, and here it does not
        self.now_ns = START_NS
        self.faults: list[dict[str, Any]] = []
        self.readers: dict[int, Callable[[], object]] = {}
        self._quiet: list[asyncio.Future[None]] = []
        self._turns = 0
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    @property
    def now_ms(self) -> int:
        """The time in milliseconds."""
        return self.now_ns // 1_000_000

    def time(self) -> float:
        """The time in seconds, as timers know it."""
        return self.now_ns / NS_PER_S

    def select(self, timeout: float | None) -> list[Any]:
        """Nothing is ready (unless `timeout` is 0): tell who waits for that; when none does, jump to the next timer."""
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
        """There are none: sockets call back by themselves."""

    def _write_to_self(self) -> None:
        """It does not sleep in `select`."""

    async def quiet(self) -> None:
        """Wait until nothing can run at the present time."""
        waiter = self.create_future()
        self._quiet.append(waiter)
        await waiter

    async def until_ms(self, at_ms: int) -> None:
        """Wait until that time, and until nothing can run then."""
        if at_ms > self.now_ms:
            await asyncio.sleep((at_ms * 1_000_000 - self.now_ns) / NS_PER_S)
        await self.quiet()

    def add_reader(self, fd: int, callback: Callable[..., object], *arguments: Any) -> None:
        """Remember whom a descriptor calls; who owns it calls `wake_reader`."""
        self.readers[fd] = lambda: callback(*arguments)

    def remove_reader(self, fd: int) -> bool:
        """Forget it."""
        return self.readers.pop(fd, None) is not None

    def wake_reader(self, fd: int) -> None:
        """The descriptor is readable."""
        reader = self.readers.get(fd)
        if reader is not None:
            self.call_soon(reader)

    def drop_timers(self) -> None:
        """Forget what was to come: the run is over."""
        self._scheduled.clear()
        heapq.heapify(self._scheduled)
        self._ready.clear()


@contextlib.contextmanager
def clock_of(loop: VirtualLoop) -> Iterator[None]:
    """From here on the proxy's one clock shows the time of `loop`, wherever it was imported to."""
    real, virtual = proxy.base.clock.now_ns, lambda: loop.now_ns
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("proxy.") and getattr(module, "now_ns", None) is real  # each `from proxy.base.clock import now_ns`
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
