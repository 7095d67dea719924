"""The supervisor and a worker exchange messages over a link."""

import asyncio
import socket

import pytest

from proxy.workers.messaging.link import LENGTH, Link, LinkLost
from proxy.workers.messaging.messages import AnyMessage, Drain, InForce, PageRequest, Ports, Quotas, Ready, Request, encoded
from tests.support.scripted.scripted_sockets import until

QUOTAS = Quotas(7, False, [((("client-id", None), ("user", "a")), {"producer_byte_rate": 1.5})], {"all": "observe"}, "User:a")


class Ends:
    """Both ends of a link, with what each received."""

    def __init__(self) -> None:
        self.here: list[AnyMessage] = []
        self.there: list[AnyMessage] = []
        self.lost: list[str] = []

    async def connect(self) -> tuple[Link, Link]:
        first, second = socket.socketpair()
        here = await Link.over(first, self.here.append, self.answer, lambda: self.lost.append("here"))
        there = await Link.over(second, self.there.append, self.answer, lambda: self.lost.append("there"))
        return here, there

    async def answer(self, request: Request) -> bytes:
        assert isinstance(request.what, PageRequest)
        if request.what.query == b"wrong":
            raise ValueError("no such page")
        if request.what.query == b"slow":
            await asyncio.sleep(10)
        return request.what.query.upper()


MESSAGES = (Ready(), Drain(), InForce(3), Ports("edge", 9092, {1: 9093}), QUOTAS)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
async def test_what_is_sent_arrives(message: AnyMessage) -> None:
    """A message arrives equal to what was sent."""
    ends = Ends()
    here, there = await ends.connect()
    here.send(message)
    await until(lambda: bool(ends.there))
    assert ends.there == [message]
    here.close()
    there.close()


async def test_messages_may_be_cut_anywhere() -> None:
    """Messages that arrive byte by byte or several in one piece are received as they were sent."""
    ends = Ends()
    first, second = socket.socketpair()
    link = await Link.over(second, ends.there.append, ends.answer, lambda: None)
    data = b"".join(LENGTH.pack(len(encoded(one))) + encoded(one) for one in (QUOTAS, Ready()))
    for at in range(len(QUOTAS.switches) + 40):
        first.send(data[at : at + 1])
        await asyncio.sleep(0)
    first.send(data[len(QUOTAS.switches) + 40 :])
    await until(lambda: len(ends.there) == 2)
    assert ends.there == [QUOTAS, Ready()]
    link.close()
    first.close()


async def test_a_request_gets_its_answer() -> None:
    """Each of many concurrent requests gets its own response."""
    ends = Ends()
    here, there = await ends.connect()
    answers = await asyncio.gather(*(here.ask(PageRequest(str(number).encode() + b"x"), 5) for number in range(20)))
    assert answers == [str(number).encode() + b"X" for number in range(20)]
    here.close()
    there.close()


async def test_a_request_that_fails_there_names_the_reason() -> None:
    """The exception of a request that failed in the other process names the error."""
    ends = Ends()
    here, there = await ends.connect()
    with pytest.raises(LinkLost, match="no such page"):
        await here.ask(PageRequest(b"wrong"), 5)
    here.close()
    there.close()


async def test_an_answer_that_does_not_come_in_time_is_given_up() -> None:
    """A request without a response in time raises an error, and the next request is answered."""
    ends = Ends()
    here, there = await ends.connect()
    with pytest.raises(LinkLost, match="within"):
        await here.ask(PageRequest(b"slow"), 0.01)
    assert await here.ask(PageRequest(b"next"), 5) == b"NEXT"
    here.close()
    there.close()


async def test_the_end_of_the_other_process_ends_requests() -> None:
    """The end of the other process ends waiting requests with an error and calls the callback of the link."""
    ends = Ends()
    here, there = await ends.connect()
    asked = asyncio.ensure_future(here.ask(PageRequest(b"slow"), 60))
    await asyncio.sleep(0)
    there.close()
    with pytest.raises(LinkLost, match="ended"):
        await asked
    assert "here" in ends.lost
    assert not here.is_open
    here.send(Ready())  # has no effect


async def test_what_has_come_can_be_read_before_the_event_loop_does() -> None:
    """Messages that have arrived can be read before the event loop reads them, in order and once."""
    ends = Ends()
    first, second = socket.socketpair()
    link = await Link.over(second, ends.there.append, ends.answer, lambda: None)
    data = b"".join(LENGTH.pack(len(encoded(one))) + encoded(one) for one in MESSAGES)
    first.send(data[:-3])
    assert link.read_ahead(0)
    assert ends.there == list(MESSAGES[:-1])
    assert not link.read_ahead(0)
    first.send(data[-3:])
    assert link.read_ahead(0)
    first.send(LENGTH.pack(len(encoded(Drain()))) + encoded(Drain()))
    await until(lambda: len(ends.there) == len(MESSAGES) + 1)  # read by the event loop
    assert ends.there == [*MESSAGES, Drain()]
    link.close()
    assert not link.read_ahead(0)
    first.close()


async def test_a_message_that_is_taken_in_is_not_overtaken() -> None:
    """Reading ahead inside the handler of a message reads nothing, and the next message arrives in order."""
    first, second = socket.socketpair()
    seen: list[object] = []

    def received(message: AnyMessage) -> None:
        seen.append(link.read_ahead(0))
        seen.append(message)

    ends = Ends()
    link = await Link.over(second, received, ends.answer, lambda: None)
    for message in (Ready(), Drain()):
        first.send(LENGTH.pack(len(encoded(message))) + encoded(message))
    await until(lambda: len(seen) == 4)
    assert seen == [False, Ready(), False, Drain()]
    link.close()
    first.close()
