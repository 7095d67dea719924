"""Members of a fleet at a real Kafka, and the remedies that their errors name."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from proxy.fleet.bus.bus import Bus, BusError, Received
from proxy.fleet.bus.topic import TopicBus
from tests.support.fleet.bus_contract import PATIENCE_S
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import CONFIG_COMMAND, TOPIC_COMMAND

_TOOLS: Final = {"kafka-topics.sh": TOPIC_COMMAND, "kafka-configs.sh": CONFIG_COMMAND, "kafka-acls.sh": "org.apache.kafka.tools.AclCommand"}


class TopicMembers:
    """Members at the same brokers; all are stopped at the end.

    Args:
        bootstrap: the brokers.
        login: further arguments of each client.
    """

    def __init__(self, bootstrap: str, login: dict[str, Any] | None = None) -> None:
        self._settings = {"bootstrap_servers": bootstrap.split(","), **(login or {})}
        self._buses: list[TopicBus] = []

    def bus(self, topic: str, *, create: bool = True, replication_factor: int | None = None) -> TopicBus:
        """Return a bus that is not started."""
        bus = TopicBus(lambda: dict(self._settings), topic, create=create, replication_factor=replication_factor)
        self._buses.append(bus)
        return bus

    async def join(self, topic: str, *, create: bool = True) -> TopicBus:
        """Return a bus that is started; a broker that was stopped by an earlier test may need a moment until it responds again."""
        bus = self.bus(topic, create=create)
        await start_despite_errors(bus)
        return bus

    async def stop(self) -> None:
        """Stop all buses."""
        for bus in self._buses:
            await bus.stop()


@contextlib.asynccontextmanager
async def members_at(bootstrap: str, login: dict[str, Any] | None = None) -> AsyncIterator[TopicMembers]:
    """Stop all members at the end of the block."""
    members = TopicMembers(bootstrap, login)
    try:
        yield members
    finally:
        await members.stop()


async def start_despite_errors(bus: Bus) -> None:
    """Start a bus, again after each error."""
    await _repeated(bus.start)


async def send_despite_errors(bus: Bus, data: bytes) -> None:
    """Send a message, again after each error."""
    await _repeated(lambda: bus.send(data))


async def _repeated(call: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await call()
            except BusError:
                await asyncio.sleep(0.05)
            else:
                return


async def received_despite_errors(bus: Bus, last: bytes) -> list[Received]:
    """Return the next messages up to one with this content; go on after errors."""
    messages: list[Received] = []
    async with asyncio.timeout(PATIENCE_S):
        while not any(one.data == last for one in messages):
            with contextlib.suppress(BusError):
                messages += await bus.receive()
    return messages


def run_remedy(tools: JavaTools, problem: str, *, bootstrap: str | None = None, principal: str = "") -> Sequence[str]:
    """Run the command at the end of a problem as an operator would, with a principal in the place of NAME; return its words.

    Args:
        bootstrap: other addresses of the same brokers, where nobody logs in.
    """
    line = problem.partition(" run: ")[2].replace("User:NAME", f"User:{principal}")
    tool, *words = shlex.split(line)
    if bootstrap is not None:
        words[words.index("--bootstrap-server") + 1] = bootstrap
        login_at = words.index("--command-config")
        del words[login_at : login_at + 2]
    tools.run(_TOOLS[tool], *words)
    return words
