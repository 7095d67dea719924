"""A bus in memory: one log, and for each member a link with delay, loss, duplicates, disorder and cuts.

`MemoryLog` has its own time. A simulation moves it with `advance`, and everything that is due happens in the order of time, so one seed
gives one course. `MemoryBus` is the same for code that awaits; there a clock moves the log, or `run_for`.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from proxy.fleet.bus.bus import BusError, Received, Sent

Action = Callable[[], None]
Result = TypeVar("Result")
EPOCH_MS: Final = 1_700_000_000_000
"""Time of the bus when the time of the log is 0: they differ, as the clock of a broker differs from a monotonic clock."""
LIMIT_MS: Final = 5_000
"""Time after which a member without responses reports a problem."""
TURNS: Final = 20
"""Number of turns of the event loop in which tasks respond to what has happened."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What one direction of a link does to messages.

    Attributes:
        delay_ms: the time that each message takes.
        jitter_ms: a message takes up to this much longer, and those behind it wait.
        loss: probability that a message does not arrive.
        duplication: probability that it arrives twice.
        disorder: probability that it takes up to `disorder_ms` longer, and those behind it overtake it.
    """

    delay_ms: int = 0
    jitter_ms: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    disorder: float = 0.0
    disorder_ms: int = 100


NO_FAULTS: Final = Faults()


class Link:
    """One direction between a member and the bus; `faults` may be replaced at any time."""

    def __init__(self, log: MemoryLog, faults: Faults) -> None:
        self.faults = faults
        self.is_cut = False
        self._log = log
        self._held: list[Action] = []
        self._last_ms = 0  # arrival of the message that was sent last

    def carry(self, arrive: Action) -> None:
        """Bring a message to the other end, where it calls `arrive`: once, twice or not at all."""
        dice = self._log.dice
        if dice.random() < self.faults.loss:
            return
        for _ in range(1 + (dice.random() < self.faults.duplication)):
            self._log.at(self._arrival_ms(), partial(self._arrived, arrive))

    def heal(self) -> None:
        """End a cut: what was sent meanwhile arrives now, in order."""
        self.is_cut = False
        held, self._held = self._held, []
        for arrive in held:
            self._log.at(self._arrival_ms(), partial(self._arrived, arrive))

    def _arrival_ms(self) -> int:
        dice = self._log.dice
        arrival_ms = self._log.now_ms + self.faults.delay_ms + dice.randint(0, self.faults.jitter_ms)
        if dice.random() < self.faults.disorder:
            return arrival_ms + dice.randint(1, self.faults.disorder_ms)
        self._last_ms = max(self._last_ms, arrival_ms)
        return self._last_ms

    def _arrived(self, arrive: Action) -> None:
        if self.is_cut:
            self._held.append(arrive)
        else:
            arrive()


class Call(Generic[Result]):
    """A request to the bus, whose first outcome stays."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self.problem: str | None = None
        self.on_done: Action = lambda: None

    @property
    def is_done(self) -> bool:
        """Whether the response has arrived, or the time limit has passed."""
        return self.result is not None or self.problem is not None

    def end(self, result: Result | None, problem: str | None = None) -> None:
        """Set the outcome, if there is none yet."""
        if not self.is_done:
            self.result, self.problem = result, problem
            self.on_done()

    def value(self) -> Result:
        """Return the result.

        Raises:
            BusError: there is none.
        """
        if self.result is None:
            raise BusError(self.problem or "has not responded yet")
        return self.result


class MemoryMember:
    """A member with its link to the log.

    Args:
        log: the log.
        outbound, inbound: faults of the directions to and from the log.
        limit_ms: time after which a request without response has failed; a member that a cut keeps from reading reports it as often.

    Attributes:
        on_change: called when messages or a problem have arrived.
    """

    def __init__(self, log: MemoryLog, outbound: Faults, inbound: Faults, limit_ms: int) -> None:
        self.outbound = Link(log, outbound)
        self.inbound = Link(log, inbound)
        self.on_change: Action = lambda: None
        self._log = log
        self._limit_ms = limit_ms
        self._inbox: list[Received] = []
        self._feed = 0  # number of the connection or `read_from`; what arrives for an earlier one is void
        self._is_lost = False
        self._problem: str | None = None
        self._cuts = 0

    def send(self, data: bytes) -> Call[Sent]:
        """Send a message. It may be accepted although its call has failed, as with a broker that continues after a stop."""
        return self.call(lambda: self._log.append(data))

    def read_from(self, time_ms: int) -> Call[int]:
        """Continue to read at the first message of this time or later, or at the end."""
        return self.call(lambda: self.begin(self._log.position_of(time_ms)))

    def take(self) -> list[Received]:
        """Return the messages that have arrived since the last call.

        Raises:
            BusError: messages were lost, which stays so until `read_from`; or nothing can arrive because of a cut.
        """
        self._log.catch_up()
        problem, self._problem = self._problem, None
        if self._is_lost:
            raise BusError("messages were lost: the log was made anew")
        if problem is not None:
            raise BusError(problem)
        taken, self._inbox = self._inbox, []
        return taken

    def cut(self, *, outbound: bool = True, inbound: bool = True) -> None:
        """Let nothing pass, in both directions or in one."""
        self._log.catch_up()
        self.outbound.is_cut |= outbound
        self.inbound.is_cut |= inbound
        self._cuts += 1
        self._watch(self._cuts)

    def heal(self) -> None:
        """End all cuts."""
        self._log.catch_up()
        self._cuts += 1
        self.outbound.heal()
        self.inbound.heal()

    # --- between the member and the log

    def call(self, execute: Callable[[], Result]) -> Call[Result]:
        """Execute something at the log, and bring its result back."""
        self._log.catch_up()
        call: Call[Result] = Call()

        def respond() -> None:
            result = execute()
            self.inbound.carry(lambda: call.end(result))

        self.outbound.carry(respond)
        self._log.at(self._log.now_ms + self._limit_ms, lambda: call.end(None, "the bus does not respond"))
        return call

    def begin(self, position: int) -> int:
        """Read from a position on; return it."""
        self.end()
        self._log.readers.append(self)
        for message in self._log.messages[position:]:
            self.offer(message)
        return position

    def end(self) -> None:
        """Read no more."""
        self._feed += 1
        self._inbox, self._is_lost, self._problem = [], False, None
        if self in self._log.readers:
            self._log.readers.remove(self)

    def offer(self, message: Received) -> None:
        """Send a message of the log to this member."""
        self.inbound.carry(partial(self._deliver, self._feed, message))

    def lose(self) -> None:
        """The messages of the log are gone."""
        self._feed += 1
        self._inbox, self._is_lost = [], True
        self.on_change()

    def _deliver(self, feed: int, message: Received) -> None:
        if feed == self._feed:
            self._inbox.append(message)
            self.on_change()

    def _watch(self, cut: int) -> None:
        self._log.at(self._log.now_ms + self._limit_ms, partial(self._silent, cut))

    def _silent(self, cut: int) -> None:
        if cut == self._cuts and self.inbound.is_cut:
            self._problem = "the bus does not respond"
            self.on_change()
            self._watch(cut)


class MemoryLog:
    """The log that all members share.

    Args:
        dice: decides about faults.
        clock: returns milliseconds; None: the time moves only by `advance`.

    Attributes:
        now_ms: the time of the log, which begins with 0.
        messages: all messages; each one's position is its index.
        readers: the members that read.
    """

    def __init__(self, dice: random.Random, clock: Callable[[], int] | None = None) -> None:
        self.dice = dice
        self.now_ms = 0
        self.messages: list[Received] = []
        self.readers: list[MemoryMember] = []
        self._clock = clock
        self._clock_begin_ms = 0 if clock is None else clock()
        self._due: list[tuple[int, int, Action]] = []
        self._numbers = itertools.count()
        self._is_advancing = False
        self._changed = asyncio.Event()

    @property
    def time_ms(self) -> int:
        """The time by the clock of the bus."""
        return EPOCH_MS + self.now_ms

    def join(self, outbound: Faults = NO_FAULTS, inbound: Faults = NO_FAULTS, limit_ms: int = LIMIT_MS) -> MemoryMember:
        """Return a new member, which reads the messages that are appended from now on."""
        member = MemoryMember(self, outbound, inbound, limit_ms)
        member.begin(len(self.messages))
        return member

    def advance(self, duration_ms: int) -> None:
        """Move the time, and let everything happen that is due meanwhile."""
        end_ms = self.now_ms + duration_ms
        self._is_advancing = True
        try:
            while self._due and self._due[0][0] <= end_ms:
                self.now_ms, _, act = heapq.heappop(self._due)
                act()
        finally:
            self._is_advancing = False
        self.now_ms = end_ms

    def make_anew(self) -> None:
        """Delete all messages; positions begin with 0 again."""
        self.catch_up()
        self.messages = []
        for member in self.readers:
            member.lose()

    async def run_forever(self) -> None:
        """Follow the clock until cancelled."""
        assert self._clock is not None
        while True:
            self.catch_up()
            self._changed.clear()
            wait_s = (self._due[0][0] - self.now_ms) / 1_000 if self._due else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    # --- for members and links

    def catch_up(self) -> None:
        """Move the time to that of the clock, if there is one."""
        if self._clock is not None and not self._is_advancing:
            self.advance(self._clock() - self._clock_begin_ms - self.now_ms)

    def at(self, time_ms: int, act: Action) -> None:
        """Let `act` be called when it is `time_ms`."""
        heapq.heappush(self._due, (max(time_ms, self.now_ms), next(self._numbers), act))
        self._changed.set()

    def append(self, data: bytes) -> Sent:
        """Accept a message, and send it to all readers."""
        message = Received(len(self.messages), self.time_ms, data)
        self.messages.append(message)
        for member in self.readers:
            member.offer(message)
        return Sent(message.position, message.time_ms)

    def position_of(self, time_ms: int) -> int:
        """Return the position of the first message of this time or later, or the end."""
        return next((message.position for message in self.messages if message.time_ms >= time_ms), len(self.messages))


class MemoryBus:
    """A `Bus` over a member of a log.

    Args:
        log: the log.
        name: name of the bus in messages.
        outbound, inbound, limit_ms: as of `MemoryMember`.

    Attributes:
        member: the member with its link, where faults and cuts are made.
    """

    def __init__(
        self, log: MemoryLog, name: str = "memory", *, outbound: Faults = NO_FAULTS, inbound: Faults = NO_FAULTS, limit_ms: int = LIMIT_MS
    ) -> None:
        self.name = name
        self.member = MemoryMember(log, outbound, inbound, limit_ms)
        self._log = log
        self._is_started = False
        self._changed = asyncio.Event()
        self.member.on_change = self._changed.set

    async def start(self) -> None:
        """See `Bus.start`."""
        await _outcome(self.member.call(lambda: self.member.begin(len(self._log.messages))))
        self._is_started = True

    async def send(self, data: bytes) -> Sent:
        """See `Bus.send`."""
        self._check_started()
        return await _outcome(self.member.send(data))

    async def read_from(self, time_ms: int) -> int:
        """See `Bus.read_from`."""
        self._check_started()
        return await _outcome(self.member.read_from(time_ms))

    async def receive(self) -> Sequence[Received]:
        """See `Bus.receive`."""
        while True:
            self._check_started()
            if messages := self.member.take():
                return messages
            self._changed.clear()
            await self._changed.wait()

    async def stop(self) -> None:
        """See `Bus.stop`."""
        self._is_started = False
        self.member.end()
        self._changed.set()

    def _check_started(self) -> None:
        if not self._is_started:
            raise BusError("is not started")


async def _outcome(call: Call[Result]) -> Result:
    done = asyncio.Event()
    call.on_done = done.set
    if not call.is_done:
        await done.wait()
    return call.value()


async def run_for(log: MemoryLog, duration_ms: int) -> None:
    """Move the time of a log without a clock, millisecond by millisecond, and let tasks respond in between."""
    for _ in range(duration_ms):
        await _settle()
        log.advance(1)
    await _settle()


async def _settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
