"""A request of Sluice's own that goes to the broker on a client's connection, for a request of the client that Sluice answers."""

from __future__ import annotations

import asyncio

from proxy.session.administered import BrokersAnswer


class BrokerQuestion:
    """One such request, from its forwarding to its response."""

    __slots__ = ("_answer", "_ended")

    def __init__(self, answer: BrokersAnswer, loop: asyncio.AbstractEventLoop) -> None:
        self._answer = answer
        self._ended: asyncio.Future[None] = loop.create_future()

    async def response(self) -> bytes:
        """Wait for the whole response of the broker, and return it.

        Raises:
            ConnectionError: the connection has ended.
        """
        await self._ended
        assert self._answer.frame is not None
        return self._answer.frame

    def settle(self, *, closing: bool) -> None:
        """End the wait when the response has arrived, or when the connection is closing and there will be none."""
        if self._ended.done():
            return
        if self._answer.frame is not None:
            self._ended.set_result(None)
        elif closing:
            self._ended.set_exception(ConnectionAbortedError("the connection has ended"))
