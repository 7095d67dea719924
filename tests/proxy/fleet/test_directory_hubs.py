"""Hubs whose bus is a folder: members share usage, and know the last window when they start."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from proxy.base.clock import now_ms, wall_time_s
from proxy.fleet.bus.directory import DirectoryBus
from proxy.fleet.hub import Hub, Settings
from proxy.fleet.wire import About
from tests.support.fleet.fleet_members import KEYS, FleetMember
from tests.support.scripted.scripted_sockets import until

BOUND = 1_000.0


class Member(FleetMember):
    """A member with a hub."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(name, 1, BOUND, now_ms())
        bus = DirectoryBus(directory, lambda: int(wall_time_s() * 1_000))
        self.hub = Hub(bus, self.rows, KEYS, Settings(About(name, "1", "mute"), 10, 1 << 20), now_ms)

    def use(self, amount: float) -> None:
        """Record usage of the member's group, and publish it to the hub."""
        self.workers[0].record(amount, now_ms())
        self.workers[0].publish(now_ms())

    def knows(self, amount: float) -> bool:
        """Whether the member's group contains this usage of all members."""
        return self.known(now_ms()) == [amount]


@contextlib.asynccontextmanager
async def running(member: Member) -> AsyncIterator[Member]:
    """Run the hub during the block; it ends with a last message."""
    task = asyncio.ensure_future(member.hub.run_forever())
    await member.hub.joined.wait()
    try:
        yield member
        await member.hub.publish_last()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_members_share_usage_and_keep_it_over_a_restart(tmp_path: Path) -> None:
    """Each member knows what the other uses, also a member that starts after the other has ended."""
    async with running(Member(tmp_path, "a")) as one, running(Member(tmp_path, "b")) as other:
        one.use(300.0)
        other.use(20.0)
        await until(lambda: one.knows(320.0) and other.knows(320.0))
        assert [member.member for member in one.hub.status().members] == ["a", "b"]
        assert one.hub.status().problem is None
        assert one.hub.status().bus == f"directory:{tmp_path}"
    async with running(Member(tmp_path, "a")) as again:
        again.use(1.0)
        assert again.knows(321.0)


async def test_a_folder_that_is_deleted_and_made_again(tmp_path: Path) -> None:
    """A member whose folder is gone is cut off, and both know all usage when there is a folder again."""
    folder = tmp_path / "bus"
    folder.mkdir(mode=0o700)
    async with running(Member(folder, "a")) as one, running(Member(folder, "b")) as other:
        one.use(300.0)
        await until(lambda: other.knows(300.0))
        folder.rename(tmp_path / "gone")
        for file in (tmp_path / "gone").iterdir():
            file.unlink()
        await until(lambda: one.hub.status().problem is not None and other.hub.status().problem is not None)
        other.use(20.0)
        folder.mkdir(mode=0o700)
        await until(lambda: one.knows(320.0) and other.knows(320.0))
