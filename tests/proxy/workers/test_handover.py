"""A new supervisor takes over ports, brokers and buckets from the old one over a Unix socket."""

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy.base.errors import StartError
from proxy.net.accept.client_listeners import Port
from proxy.workers.handover.channel import Channel, ChannelClosed, connected
from proxy.workers.handover.handover_listener import HandoverListener, Part
from proxy.workers.handover.messages import (
    PROTOCOL,
    AskPorts,
    BucketState,
    ConnectionsChanged,
    Failed,
    HandedAll,
    Offer,
    Refused,
    Taken,
    TakeOver,
)
from proxy.workers.handover.orphan import Orphan
from proxy.workers.handover.parts import KnownBrokers, parts_of
from proxy.workers.handover.place import Place
from proxy.workers.handover.predecessor import claim_place
from tests.support.scripted.scripted_sockets import guarded, until

CHANGES = [ConnectionsChanged([("edge", -1)]), ConnectionsChanged(addresses=[(0, "192.0.2.1", -1)])]
REACHED = [(0, 1, "kafka", 9_092)]
BUCKET = BucketState((("user", "a"),), 11, 1_000, 2.0, -3.5, 12_345)


class Replaced:
    """The supervisor to be replaced, with a record of what happened to it."""

    def __init__(self, ports: Sequence[Port], segment: int) -> None:
        self.ports = ports
        self.segment = segment
        self.refusal = ""
        self.taken_by: list[int] = []
        self.kept_for: list[tuple[str, bool]] = []

    def offer(self, _pid: int) -> tuple[Offer, Sequence[int]] | Refused:
        return Refused(self.refusal) if self.refusal else (Offer([0, 1]), [self.segment])

    async def hand_over(self) -> Sequence[Part]:
        return parts_of(self.ports, KnownBrokers([(0, number, "kafka", 9_092) for number in range(500)], REACHED), [BUCKET])

    def taken(self, pid: int) -> None:
        self.taken_by.append(pid)

    async def report(self, channel: Channel) -> None:
        for change in CHANGES:
            await channel.send(change)

    async def kept(self, problem: str, *, is_ending: bool) -> None:
        self.kept_for.append((problem, is_ending))


class Scene:
    """A folder with the socket of a supervisor whose lock is free, as after its death."""

    def __init__(self, folder: Path, ports: int = 3) -> None:
        self.place = Place(folder / "run")
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(ports)]
        self.segment, self._other = os.pipe()
        self.replaced = Replaced([Port("edge", f"127.0.0.1:{at}", sock) for at, sock in enumerate(self.sockets)], self.segment)
        self.closed = 0
        self.listening = self.place.listen()
        self.handover_listener = HandoverListener(self.listening, self.replaced, None, self._on_closed)

    def _on_closed(self) -> None:
        self.closed += 1

    async def close(self) -> None:
        await self.handover_listener.stop()
        self.place.close()
        for sock in self.sockets:
            sock.close()
        os.close(self.segment)
        os.close(self._other)


def connect_to(scene: Scene) -> Channel:
    """Connect to the socket of the supervisor."""
    channel = connected(scene.place.socket_path)
    assert channel is not None
    return channel


async def test_everything_changes_hands(tmp_path: Path) -> None:
    """Ports, brokers and buckets beyond one message are handed over, changes follow, and the old socket accepts no more connections."""
    scene = Scene(tmp_path, ports=150)
    predecessor = await claim_place(scene.place, takes_over=False)
    assert predecessor is not None
    assert predecessor.numbers == [0, 1]
    assert os.fstat(predecessor.segment).st_ino == os.fstat(scene.segment).st_ino
    inherited = await predecessor.inherit()
    assert [(port.listener, port.address) for port in inherited.ports] == [("edge", f"127.0.0.1:{at}") for at in range(150)]
    assert [port.sock.getsockname() for port in inherited.ports] == [sock.getsockname() for sock in scene.sockets]
    assert inherited.brokers == [(0, number, "kafka", 9_092) for number in range(500)]
    assert inherited.reached == REACHED
    assert inherited.buckets == [BUCKET]
    await predecessor.taken()
    assert [change async for change in predecessor.changes()] == CHANGES
    assert scene.replaced.taken_by == [os.getpid()]
    assert connected(scene.place.socket_path) is None
    for port in inherited.ports:
        port.sock.close()
    os.close(predecessor.segment)
    await scene.close()


@pytest.mark.parametrize("says_why", [True, False])
async def test_who_does_not_begin_takes_nothing(tmp_path: Path, says_why: bool) -> None:
    """A supervisor keeps running, and can be replaced later, when the new one fails or dies."""
    scene = Scene(tmp_path)
    channel = connect_to(scene)
    await channel.send(TakeOver(PROTOCOL, os.getpid()))
    await channel.receive(5)
    if says_why:
        await channel.send(Failed(["no port", "no disk"]))
    else:
        channel.close()
    await until(lambda: bool(scene.replaced.kept_for))
    assert scene.replaced.kept_for == [("no port; no disk", True) if says_why else ("the other process has ended", False)]
    channel.close()
    assert await claim_place(scene.place, takes_over=False) is not None
    await scene.close()


async def test_one_takes_over_at_a_time(tmp_path: Path) -> None:
    """A second takeover at the same time, one of another protocol, and one the supervisor does not expect are refused."""
    scene = Scene(tmp_path)
    first, second, third, fourth = (connect_to(scene) for _ in range(4))
    await first.send(TakeOver(PROTOCOL, 1))
    assert isinstance((await first.receive(5))[0], Offer)
    await second.send(TakeOver(PROTOCOL, 2))
    assert (await second.receive(5))[0] == Refused("it is being replaced already")
    await third.send(TakeOver(PROTOCOL + 1, 3))
    message, _ = await third.receive(5)
    assert isinstance(message, Refused)
    assert f"protocol {PROTOCOL}" in message.problem
    first.close()
    await until(lambda: bool(scene.replaced.kept_for))
    scene.replaced.refusal = "not now"
    await fourth.send(TakeOver(PROTOCOL, 4))
    assert (await fourth.receive(5))[0] == Refused("not now")
    for channel in (second, third, fourth):
        channel.close()
    await scene.close()


async def test_a_supervisor_that_runs_is_replaced_by_its_leave_only(tmp_path: Path) -> None:
    """A new supervisor does not start while another process holds the lock, and starts alone when the lock is free."""
    running, coming = Place(tmp_path / "run"), Place(tmp_path / "run")
    assert running.try_lock()
    with pytest.raises(StartError, match="sluice upgrade"):
        await claim_place(coming, takes_over=False)
    with pytest.raises(StartError, match="does not answer"):
        await claim_place(coming, takes_over=True)
    running.close()
    assert await claim_place(coming, takes_over=False) is None
    coming.close()


def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    """A run folder that other users can open is refused."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    with pytest.raises(StartError, match="0700"):
        Place(folder)


async def test_workers_hold_ports_until_one_of_them_has_given_them_away(tmp_path: Path) -> None:
    """One of two workers of a dead supervisor hands the ports over to the new one, and both release them."""
    place = Place(tmp_path / "run")
    handover_listener, port, (segment, other) = place.listen(), socket.create_server(("127.0.0.1", 0)), os.pipe()
    orphans = [Orphan(number, segment, lambda: KnownBrokers([(0, 1, "kafka", 9_092)], REACHED)) for number in range(2)]
    for orphan in orphans:
        orphan.keep_port(Port("edge", "127.0.0.1:9092", port.dup()))
        orphan.keep_handover_socket(handover_listener.dup())
    handover_listener.close()
    offering = [asyncio.ensure_future(orphan.offer_until_taken()) for orphan in orphans]
    predecessor = await claim_place(place, takes_over=False)
    assert predecessor is not None
    inherited = await predecessor.inherit()
    assert [one.sock.getsockname() for one in inherited.ports] == [port.getsockname()]
    assert inherited.reached == REACHED
    await predecessor.taken()
    await guarded(asyncio.gather(*offering))
    inherited.ports[0].sock.close()
    for descriptor in (segment, other, predecessor.segment):
        os.close(descriptor)
    port.close()
    place.close()


async def test_ports_are_not_held_for_ever(tmp_path: Path) -> None:
    """Workers close the ports after a time without a new supervisor, so that clients are refused."""
    place, port = Place(tmp_path / "run"), socket.create_server(("127.0.0.1", 0))
    address = port.getsockname()
    orphan = Orphan(0, -1, KnownBrokers)
    orphan.keep_port(Port("edge", "127.0.0.1:9092", port))
    orphan.keep_handover_socket(place.listen())
    await orphan.offer_until_taken(held_s=0.01)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_a_message_of_nobody_ends_the_channel() -> None:
    """An invalid message, and the end of the other process, each raise ChannelClosed."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(one)
    socket.send_fds(other, [b"nonsense"], [other.fileno()])
    with pytest.raises(ChannelClosed):
        await channel.receive(5)
    await Channel(other).send(HandedAll())
    assert await channel.receive(5) == (HandedAll(), [])
    other.close()
    with pytest.raises(ChannelClosed, match="ended"):
        await channel.receive(5)
    with pytest.raises(ChannelClosed):
        await channel.send(AskPorts())
    channel.close()
    assert Taken() != AskPorts()


async def test_a_folder_that_is_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    """A runtime directory whose path leaves no room for the name of a socket is one error with the length that it may have."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir(mode=0o700)
    with pytest.raises(StartError, match=rf"^runtime_dir: {folder} is too long for a socket in it; name a folder of at most \d+ bytes$"):
        await claim_place(Place(folder), takes_over=False)
