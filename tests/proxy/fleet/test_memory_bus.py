"""The bus in memory: a log that all members share, and faults that do what their names say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from proxy.fleet.bus.bus import Bus, BusError, Received
from tests.support.fleet.bus_contract import CHECKS, Check, check_not_started
from tests.support.fleet.memory_bus import EPOCH_MS, LIMIT_MS, NO_FAULTS, Faults, MemoryBus, MemoryLog, MemoryMember, run_for

COUNT = 400
SEED = 3


def new_log() -> MemoryLog:
    return MemoryLog(random.Random(SEED))


def send_many(member: MemoryMember, count: int = COUNT) -> None:
    for number in range(count):
        member.send(b"%d" % number)


def numbers(messages: Sequence[Received]) -> list[int]:
    """Return the data of messages that `send_many` has sent."""
    return [int(message.data) for message in messages]


def positions(messages: Sequence[Received]) -> list[int]:
    return [message.position for message in messages]


# --- the log


def test_each_member_reads_every_message_in_one_order() -> None:
    """Two members read the same messages of both, with the position and time that the senders learn."""
    log = new_log()
    first, second = log.join(), log.join()
    log.advance(10)
    sent = [first.send(b"a"), second.send(b"b"), first.send(b"c")]
    log.advance(0)
    expected = [Received(place, EPOCH_MS + 10, data) for place, data in enumerate((b"a", b"b", b"c"))]
    assert first.take() == second.take() == log.messages == expected
    assert [call.value() for call in sent] == [(0, EPOCH_MS + 10), (1, EPOCH_MS + 10), (2, EPOCH_MS + 10)]


@pytest.mark.parametrize(("time_ms", "position"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 3), (99, 3)])
def test_reading_begins_at_a_time(time_ms: int, position: int) -> None:
    """A member that reads from a time gets the first message of this time or later and all after it, or only those after the end."""
    log = new_log()
    member = log.join()
    for pause_ms in (10, 10, 0):
        log.advance(pause_ms)
        member.send(b"old")
        log.advance(0)
    call = member.read_from(EPOCH_MS + time_ms)
    log.advance(0)
    member.send(b"new")
    log.advance(0)
    assert call.value() == position
    assert positions(member.take()) == list(range(position, 4))


def test_a_member_that_joins_reads_what_comes_then() -> None:
    """A new member does not get earlier messages."""
    log = new_log()
    log.join().send(b"early")
    log.advance(0)
    late = log.join()
    log.advance(0)
    assert late.take() == []


def test_a_log_that_is_made_anew_has_lost_messages() -> None:
    """Readers get an error until they choose a place to read from, and messages on the way are void."""
    log = new_log()
    member = log.join(inbound=Faults(delay_ms=10))
    send_many(member, 3)
    log.advance(5)
    log.make_anew()
    log.advance(10)
    for _ in range(2):
        with pytest.raises(BusError, match="messages were lost"):
            member.take()
    member.send(b"first")
    member.read_from(0)
    log.advance(10)
    assert member.take() == [(0, EPOCH_MS + 15, b"first")]


# --- faults


def arrivals(outbound: Faults, inbound: Faults) -> list[tuple[int, int]]:
    """Send a message each 10 ms; return (time, data) of each one that another member receives."""
    log = new_log()
    sender, reader = log.join(outbound), log.join(NO_FAULTS, inbound)
    seen: list[tuple[int, int]] = []
    reader.on_change = lambda: seen.extend((log.now_ms, number) for number in numbers(reader.take()))
    for number in range(COUNT):
        sender.send(b"%d" % number)
        log.advance(10)
    log.advance(1_000)
    return seen


Directions = Callable[[Faults], list[tuple[int, int]]]
BOTH_DIRECTIONS = pytest.mark.parametrize(
    "through",
    [
        pytest.param(lambda faults: arrivals(faults, NO_FAULTS), id="outbound"),
        pytest.param(lambda faults: arrivals(NO_FAULTS, faults), id="inbound"),
    ],
)


@BOTH_DIRECTIONS
def test_delay(through: Directions) -> None:
    """Each message takes exactly the delay."""
    assert through(Faults(delay_ms=7)) == [(10 * number + 7, number) for number in range(COUNT)]


@BOTH_DIRECTIONS
def test_jitter(through: Directions) -> None:
    """Messages take between the delay and the delay with jitter, or wait for those before them, and keep their order."""
    seen = through(Faults(delay_ms=5, jitter_ms=30))
    assert [number for _, number in seen] == list(range(COUNT))
    times_ms = [time_ms - 10 * number for time_ms, number in seen]
    assert (min(times_ms), max(times_ms)) == (5, 35)


@BOTH_DIRECTIONS
def test_loss(through: Directions) -> None:
    """About the given part of the messages does not arrive; the others arrive in order."""
    seen = [number for _, number in through(Faults(loss=0.25))]
    assert seen == sorted(set(seen))
    assert 0.15 * COUNT < COUNT - len(seen) < 0.35 * COUNT


@BOTH_DIRECTIONS
def test_duplication(through: Directions) -> None:
    """About the given part of the messages arrives twice."""
    seen = [number for _, number in through(Faults(duplication=0.25))]
    assert sorted(set(seen)) == list(range(COUNT))
    assert 0.15 * COUNT < len(seen) - COUNT < 0.35 * COUNT


@BOTH_DIRECTIONS
def test_disorder(through: Directions) -> None:
    """About the given part of the messages is overtaken by later ones; each arrives once."""
    seen = [number for _, number in through(Faults(disorder=0.25, disorder_ms=100))]
    overtaken = sum(any(later < number for later in seen[place:]) for place, number in enumerate(seen))
    assert seen != sorted(seen)
    assert sorted(seen) == list(range(COUNT))
    assert overtaken > 0.15 * COUNT


def test_a_duplicate_on_the_way_to_the_log_has_its_own_position() -> None:
    """Outbound duplicates are two messages of the log; inbound duplicates are one message that arrives twice."""
    log = new_log()
    outbound, inbound = log.join(outbound=Faults(duplication=1.0)), log.join(inbound=Faults(duplication=1.0))
    outbound.send(b"x")
    log.advance(0)
    assert positions(outbound.take()) == [0, 1]
    assert positions(inbound.take()) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("outbound", "inbound", "accepted"), [(Faults(loss=1.0), NO_FAULTS, 0), (NO_FAULTS, Faults(loss=1.0), 1)], ids=["message", "response"]
)
def test_what_is_lost_fails_after_the_limit(outbound: Faults, inbound: Faults, accepted: int) -> None:
    """A send fails after the limit, whether the message or the response was lost."""
    log = new_log()
    call = log.join(outbound, inbound).send(b"x")
    log.advance(LIMIT_MS - 1)
    assert not call.is_done
    log.advance(1)
    with pytest.raises(BusError, match="does not respond"):
        call.value()
    assert len(log.messages) == accepted


def test_a_cut_holds_everything_until_it_is_healed() -> None:
    """During a cut nothing is sent or received; afterwards everything arrives in order."""
    log = new_log()
    one, other = log.join(), log.join()
    one.cut()
    call = one.send(b"0")
    other.send(b"1")
    log.advance(LIMIT_MS // 2)
    assert not call.is_done
    assert positions(other.take()) == [0]
    assert one.take() == []
    one.heal()
    log.advance(0)
    assert call.value().position == 1
    assert numbers(one.take()) == [1, 0]


def test_a_cut_of_the_way_to_the_log() -> None:
    """The member still receives, and its own messages arrive after the cut."""
    log = new_log()
    one, other = log.join(), log.join()
    one.cut(inbound=False)
    call = one.send(b"0")
    other.send(b"1")
    log.advance(LIMIT_MS)
    assert call.problem is not None
    assert numbers(one.take()) == [1]
    one.heal()
    log.advance(0)
    assert numbers(other.take()) == [1, 0]


def test_a_cut_of_the_way_from_the_log() -> None:
    """The other members receive what this one sends, while it gets no response and reports each limit that it cannot read."""
    log = new_log()
    one, other = log.join(), log.join()
    one.cut(outbound=False)
    call = one.send(b"0")
    log.advance(0)
    assert numbers(other.take()) == [0]
    for _ in range(2):
        assert one.take() == []
        log.advance(LIMIT_MS)
        with pytest.raises(BusError, match="does not respond"):
            one.take()
    assert call.problem is not None
    one.heal()
    log.advance(LIMIT_MS)
    assert numbers(one.take()) == [0]


def test_one_seed_gives_one_course() -> None:
    """The same seed and calls give the same arrivals."""
    faults = Faults(3, 20, loss=0.1, duplication=0.1, disorder=0.1)
    assert arrivals(faults, faults) == arrivals(faults, faults)


# --- as a Bus


async def test_code_that_awaits_on_a_virtual_clock() -> None:
    """A message with its response, and its way to another member, take the delays of the links and no time of the machine."""
    log = new_log()
    buses: list[Bus] = [MemoryBus(log, outbound=Faults(delay_ms=200), inbound=Faults(delay_ms=300)) for _ in range(2)]
    starts = [asyncio.create_task(bus.start()) for bus in buses]
    await run_for(log, 500)
    await asyncio.gather(*starts)
    sending, receiving = asyncio.create_task(buses[0].send(b"x")), asyncio.create_task(buses[1].receive())
    await run_for(log, 499)
    assert not sending.done()
    assert not receiving.done()
    await run_for(log, 1)
    assert await sending == (0, EPOCH_MS + 700)
    assert await receiving == [(0, EPOCH_MS + 700, b"x")]


@pytest.fixture
async def log() -> AsyncIterator[MemoryLog]:
    """Return a log that follows the clock of the event loop."""
    loop = asyncio.get_running_loop()
    log = MemoryLog(random.Random(SEED), lambda: int(loop.time() * 1_000))
    running = asyncio.create_task(log.run_forever())
    yield log
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("check", CHECKS)
async def test_what_every_bus_does(log: MemoryLog, check: Check) -> None:
    """Each sentence of the contract is true of a log in memory."""

    async def join() -> Bus:
        bus = MemoryBus(log)
        await bus.start()
        return bus

    await check(join)


async def test_members_on_a_real_clock(log: MemoryLog) -> None:
    """Members exchange messages as on a topic: own messages come back, the history can be read, and a stopped bus starts again."""
    one, other = [MemoryBus(log, outbound=Faults(delay_ms=1, jitter_ms=2)) for _ in range(2)]
    await one.start()
    await other.start()
    first = await one.send(b"a")
    second = await other.send(b"b")
    assert (first.position, second.position) == (0, 1)
    await other.stop()
    await other.start()
    assert await other.read_from(0) == 0
    for bus in (one, other):
        received: list[Received] = []
        while len(received) < 2:
            received += await bus.receive()
        assert received == [(*first, b"a"), (*second, b"b")]


async def test_a_bus_that_is_cut_off(log: MemoryLog) -> None:
    """Each call that needs the log fails after the limit, and works again when the cut is healed."""
    bus = MemoryBus(log, limit_ms=20)
    await bus.start()
    bus.member.cut()
    for work in (bus.send(b"lost"), bus.read_from(0), bus.receive()):
        with pytest.raises(BusError, match="does not respond"):
            await work
    await bus.stop()
    with pytest.raises(BusError, match="does not respond"):
        await bus.start()
    bus.member.heal()
    await bus.start()
    await bus.send(b"x")
    assert [message.data for message in await bus.receive()][-1] == b"x"


async def test_a_bus_that_is_not_started(log: MemoryLog) -> None:
    """Each call fails before `start` and after `stop`, also a `receive` that waits; `stop` may be called at any time."""
    await check_not_started(MemoryBus(log), "is not started")
