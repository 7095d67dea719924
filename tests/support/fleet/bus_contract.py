"""What every bus of a fleet does, and calls with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from proxy.fleet.bus.bus import Bus, BusError, Received, Sent

PATIENCE_S: Final = 30.0
"""A time limit against hangs."""
Join = Callable[[], Awaitable[Bus]]
"""Returns the started bus of one more member."""
Check = Callable[[Join], Awaitable[None]]
"""Takes the function that adds a member to a log without messages."""


async def check_one_order(join: Join) -> None:
    """Two members receive the messages of both, each with the position and time that its sender learned; positions and times increase."""
    first, second = await join(), await join()
    data = [b"%d" % number for number in range(40)]
    sent = [await (first if number % 3 else second).send(one) for number, one in enumerate(data)]
    expected = [(*one, value) for one, value in zip(sent, data, strict=True)]
    assert await received(first, len(data)) == await received(second, len(data)) == expected
    assert [one.position for one in sent] == sorted({one.position for one in sent})
    assert [one.time_ms for one in sent] == sorted(one.time_ms for one in sent)


async def check_sends_at_once(join: Join) -> None:
    """Calls of `send` that wait at the same time end with the positions at which their messages are received, also of large messages."""
    bus = await join()
    data = [b"%d" % number * 10**size for number, size in enumerate((0, 5, 0, 1, 5, 0))]
    sent = await asyncio.gather(*map(bus.send, data))
    assert await received(bus, len(data)) == sorted((*one, value) for one, value in zip(sent, data, strict=True))


async def check_reading_from_a_time(join: Join) -> None:
    """`read_from` continues at the first message of this time or later, and at the end if there is none."""
    writer = await join()
    old = await writer.send(b"old")
    wanted = await _send_later(writer, old)
    last = await _send_later(writer, wanted)
    await writer.read_from(0)
    sent = await _positions_up_to(writer, last.position)
    for time_ms, begin in ((0, old), (old.time_ms + 1, wanted), (wanted.time_ms, wanted), (last.time_ms, last)):
        reader = await join()
        assert await reader.read_from(time_ms) == begin.position
        assert await _positions_up_to(reader, last.position) == sent[sent.index(begin.position) :]
    end = await reader.read_from(last.time_ms + 3_600_000)
    new = await writer.send(b"new")
    assert end == new.position
    assert await received(reader, 1) == [(*new, b"new")]


async def check_a_new_member(join: Join) -> None:
    """Without `read_from` a member receives the messages that are accepted after its start."""
    writer = await join()
    await writer.send(b"old")
    reader = await join()
    new = await writer.send(b"new")
    assert await received(reader, 1) == [(*new, b"new")]


async def check_a_cancelled_receive(join: Join) -> None:
    """A reader that gives up waiting again and again receives every message once."""
    bus = await join()
    seen: list[int] = []

    async def read() -> None:
        while len(seen) < 200:
            try:
                seen.extend(one.position for one in await asyncio.wait_for(bus.receive(), 0.002))
            except TimeoutError:
                continue

    reading = asyncio.create_task(read())
    sent = []
    for _ in range(200):
        sent.append((await bus.send(b"x")).position)
        await asyncio.sleep(0)
    await asyncio.wait_for(reading, PATIENCE_S)
    assert seen == sent


async def check_not_started(bus: Bus, stopped: str) -> None:
    """Each call fails before `start` and after `stop`, also a `receive` that waits; `stop` may be called at any time.

    Args:
        bus: not started yet.
        stopped: the problem of a `receive` that waited when the bus was stopped.
    """
    for _ in range(2):
        await bus.stop()
        for work in (bus.send(b"x"), bus.read_from(0), bus.receive()):
            assert await problem_of(work) == "is not started"
        await bus.start()
        receiving = asyncio.create_task(received(bus, 1))
        await bus.send(b"x")
        await receiving
        waiting = asyncio.create_task(received(bus, 1))
        await asyncio.sleep(0)
        await bus.stop()
        assert await problem_of(waiting) == stopped


CHECKS: Final = (check_one_order, check_sends_at_once, check_reading_from_a_time, check_a_new_member, check_a_cancelled_receive)
"""What is true of members that are joined."""


async def received(bus: Bus, count: int) -> list[Received]:
    """Return the next messages, at least `count`."""
    messages: list[Received] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(messages) < count:
            messages += await bus.receive()
    return messages


async def problem_of(work: Awaitable[object]) -> str:
    """Return the text of the BusError that something ends with."""
    with pytest.raises(BusError) as raised:
        await asyncio.wait_for(work, PATIENCE_S)
    return str(raised.value)


async def _positions_up_to(bus: Bus, last: int) -> list[int]:
    positions: list[int] = []
    while last not in positions:
        positions += [one.position for one in await received(bus, 1)]
    return positions


async def _send_later(bus: Bus, than: Sent) -> Sent:
    """Send messages until one has a later time; return that one."""
    async with asyncio.timeout(PATIENCE_S):
        while (sent := await bus.send(b"later")).time_ms <= than.time_ms:
            pass
    return sent
