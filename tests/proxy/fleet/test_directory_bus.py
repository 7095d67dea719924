"""The bus of a fleet in a folder: messages between members, and what is left by those that die, by a full disk and by a crash."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import multiprocessing
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.fleet.bus import directory as bus_in_directory
from proxy.fleet.bus.directory import FILE_BYTES, FILE_MS, RETENTION_MS, DirectoryBus
from tests.support.fleet.bus_contract import CHECKS, Check, check_not_started, problem_of, received

LOST = "messages were lost: the log was deleted"


class Members:
    """Members at one folder, with a clock that the test moves, and each call by 1 ms; all are stopped at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ms = 1_700_000_000_000
        self._buses: list[DirectoryBus] = []

    def bus(self) -> DirectoryBus:
        """Return a bus that is not started."""
        self._buses.append(DirectoryBus(self.directory, self.time_ms))
        return self._buses[-1]

    def time_ms(self) -> int:
        """Return the time of the machine."""
        self.now_ms += 1
        return self.now_ms

    async def join(self) -> DirectoryBus:
        """Return a bus that is started."""
        bus = self.bus()
        await bus.start()
        return bus

    async def stop(self) -> None:
        """Stop all buses."""
        for bus in self._buses:
            await bus.stop()

    def files(self) -> list[Path]:
        """Return the files of the folder, in the order of the log."""
        return sorted(self.directory.iterdir())


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[Members]:
    """Return the members of a fleet, none yet."""
    members = Members(tmp_path)  # pytest gives its folders the mode 0700
    yield members
    await members.stop()


# --- what every bus does


@pytest.mark.parametrize("check", CHECKS)
async def test_what_every_bus_does(members: Members, check: Check) -> None:
    """Each sentence of the contract is true of a folder."""
    await check(members.join)


async def test_a_bus_that_is_not_started(members: Members) -> None:
    """Each call fails before `start` and after `stop`, also a `receive` that waits; `stop` may be called at any time."""
    await check_not_started(members.bus(), "is not started")


# --- the folder


async def test_only_the_owner_can_read_what_is_written(members: Members) -> None:
    """The files have the mode 0600 for any umask."""
    old = os.umask(0)
    try:
        await (await members.join()).send(b"x")
    finally:
        os.umask(old)
    assert [file.stat().st_mode & 0o777 for file in members.files()] == [0o600]


async def test_a_folder_that_others_can_access(members: Members) -> None:
    """A folder that is missing, or accessible to others, is refused with a remedy, and can be used after it."""
    bus = members.bus()
    members.directory.chmod(0o750)
    assert (
        await problem_of(bus.start())
        == f"{members.directory} is accessible to other users (mode 0750); run `chmod 700 {members.directory}`"
    )
    members.directory.rmdir()
    assert await problem_of(bus.start()) == f"{members.directory} does not exist; run `mkdir -m 700 {members.directory}`"
    members.directory.mkdir(mode=0o700)
    await bus.start()


async def test_old_files_are_deleted(members: Members) -> None:
    """Whoever writes, files whose last message is older than a minute go away, and a member that reads along loses nothing."""
    writer, reader = await members.join(), await members.join()
    for number in range(200):
        members.now_ms += 1_000
        await (writer if number % 60 < 30 else reader).send(b"%d" % number)
        await received(reader, 1)
    await reader.read_from(0)
    kept: list[int] = []
    while 199 not in kept:
        kept += [int(one.data) for one in await received(reader, 1)]
    assert kept == list(range(kept[0], 200))
    assert RETENTION_MS // 1_000 <= len(kept) <= (RETENTION_MS + 2 * FILE_MS) // 1_000


async def test_files_are_limited(members: Members) -> None:
    """A new file begins when one is full."""
    bus = await members.join()
    data = bytes(FILE_BYTES // 3)
    for _ in range(8):
        await bus.send(data)
    assert [one.data == data for one in await received(bus, 8)] == [True] * 8
    assert len(members.files()) == 3
    assert max(file.stat().st_size for file in members.files()) < 1.4 * FILE_BYTES


async def test_a_clock_that_steps(members: Members) -> None:
    """Messages are exchanged when the clock of the machine steps by an hour in either direction."""
    bus, other = await members.join(), await members.join()
    for step_ms in (0, 3_600_000, -7_200_000, 3_600_000):
        members.now_ms += step_ms
        sent = await bus.send(b"x")
        assert sent.time_ms == members.now_ms
        assert await received(other, 1) == [(*sent, b"x")]


# --- faults


async def test_a_log_that_is_deleted(members: Members) -> None:
    """`receive` reports lost messages until the member reads from another place, and the members meet again in a new log."""
    bus, other = await members.join(), await members.join()
    await bus.send(b"old")
    await received(bus, 1)
    for file in members.files():
        file.unlink()
    for _ in range(2):
        assert await problem_of(bus.receive()) == LOST
    sent = await other.send(b"new")
    await bus.read_from(0)
    assert await received(bus, 1) == [(*sent, b"new")]


async def test_a_folder_that_is_deleted(members: Members) -> None:
    """Each call fails while the folder is missing, and a member that starts again continues in the new one."""
    bus = await members.join()
    await bus.send(b"old")
    for file in members.files():
        file.unlink()
    members.directory.rmdir()
    assert await problem_of(bus.send(b"x")) == "cannot be used: No such file or directory"
    await bus.stop()
    members.directory.mkdir(mode=0o700)
    await bus.start()
    sent = await bus.send(b"new")
    assert await received(bus, 1) == [(*sent, b"new")]


async def test_a_write_that_was_not_finished(members: Members) -> None:
    """What is behind the end of the log, because its writer died, is read by nobody, and the next message takes its place."""
    bus = await members.join()
    first = await bus.send(b"first")
    (file,) = members.files()
    with file.open("ab") as left:
        left.write(b"\x05\x00\x00\x00half of a record")
    second = await bus.send(b"second")
    reader = await members.join()
    assert await reader.read_from(0) == first.position
    assert await received(reader, 2) == [(*first, b"first"), (*second, b"second")]


async def test_a_disk_that_is_full(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that finds no room is refused, and no reader sees a part of it; the next one takes its place."""
    bus = await members.join()
    first = await bus.send(b"first")
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", writes_that_find_no_room(os.pwrite))
        assert await problem_of(bus.send(bytes(1_000))) == "cannot be used: No space left on device"
    (file,) = members.files()
    assert file.stat().st_size > first.position + 500
    second = await bus.send(b"second")
    assert await received(bus, 2) == [(*first, b"first"), (*second, b"second")]


def writes_that_find_no_room(pwrite: Callable[[int, memoryview, int], int]) -> Callable[[int, memoryview, int], int]:
    """Return a `pwrite` that writes the first half, and fails when the rest is written."""
    calls = itertools.count()

    def write(descriptor: int, data: memoryview, offset: int) -> int:
        if next(calls):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data[: len(data) // 2], offset)

    return write


@pytest.mark.parametrize("offset", [3, 20, 60], ids=["format", "end", "message"])
async def test_a_file_that_is_damaged(members: Members, offset: int) -> None:
    """A file that a crash of the machine has changed is an error for its readers, and the next start deletes it."""
    bus = await members.join()
    await bus.send(b"x" * 100)
    (file,) = members.files()
    content = bytearray(file.read_bytes())
    content[offset] ^= 0xFF
    file.write_bytes(content)
    for work in (bus.receive(), bus.read_from(0)):
        assert "damaged" in await problem_of(work)
    other = await members.join()
    await bus.stop()
    await bus.start()
    sent = await other.send(b"new")
    assert await received(bus, 1) == [(*sent, b"new")]


async def test_a_member_that_holds_the_lock(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was stopped within a write makes the others fail after a time limit, and they go on when it continues."""
    monkeypatch.setattr(bus_in_directory, "LOCK_S", 0.05)
    bus = await members.join()
    stopped = os.open(members.directory, os.O_RDONLY)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    for work in (bus.send(b"x"), members.bus().start()):
        assert await problem_of(work) == "another member has held the lock of the folder for 0.05 s"
    os.close(stopped)
    await bus.send(b"y")
    assert [one.data for one in await received(bus, 1)] == [b"y"]


def write_for_ever(directory: Path, name: str) -> None:
    """Send messages with a name, a number and a varying length, until this process is killed."""

    async def send() -> None:
        bus = DirectoryBus(directory, lambda: 0)
        await bus.start()
        for number in range(1_000_000):
            await bus.send(message_of(name, number))

    asyncio.run(send())


def message_of(name: str, number: int) -> bytes:
    return f"{name} {number} ".encode() * (1 + number % 50)


async def test_writers_that_are_killed(members: Members) -> None:
    """Processes that are killed while they write leave whole messages, each once and in the order of its sender, and stop nobody."""
    reader = DirectoryBus(members.directory, lambda: 0)
    await reader.start()
    spawn = multiprocessing.get_context("spawn")
    writers = {name: spawn.Process(target=write_for_ever, args=(members.directory, name), daemon=True) for name in "ab"}
    for writer in writers.values():
        writer.start()
    texts: list[str] = []
    for name, writer in writers.items():
        while sum(text.startswith(name) for text in texts) < 200:
            texts += [one.data.decode() for one in await received(reader, 1)]
        writer.kill()
        writer.join()
    await reader.send(b"last")
    while texts[-1] != "last":
        texts += [one.data.decode() for one in await received(reader, 1)]
    await reader.stop()
    for name in writers:
        own = [text for text in texts if text.startswith(f"{name} ")]
        assert own == [message_of(name, number).decode() for number in range(len(own))]


async def test_an_error_of_the_system(members: Members) -> None:
    """What the system says is in the problem."""
    (members.directory / "00000000000000000000.log").mkdir()
    assert await problem_of(members.bus().start()) == "cannot be used: Is a directory"


async def test_other_files_do_not_matter(members: Members) -> None:
    """Files with other names stay in the folder as they are."""
    others = [members.directory / name for name in ("notes.txt", "x.log", ".log")]
    for file in others:
        file.write_text("x")
    bus = await members.join()
    sent = await bus.send(b"x")
    assert await received(bus, 1) == [(*sent, b"x")]
    assert [file.read_text() for file in others] == ["x"] * 3
