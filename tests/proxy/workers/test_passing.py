"""The supervisor passes accepted connections to workers."""

import asyncio
import socket

import pytest

from protocol.client_hello import HELLO_BYTES_MAX
from proxy.net.accept.client_hellos import READ_BYTES
from proxy.workers.messaging.passing import (
    TURN,
    PassedConnection,
    PassedConnections,
    PassedHandoverSocket,
    PassedPort,
    pass_on,
    socket_pair,
)
from tests.support.scripted.descriptors import few_descriptors
from tests.support.scripted.scripted_sockets import until

PASSED = PassedConnection("edge", 3, ("192.0.2.1", 4_711), 12_345, (-1, "192.0.2.1"), int(socket.AF_UNIX), b"hello")


def kept_none(_what: PassedPort | PassedHandoverSocket, _sock: socket.socket) -> None:
    """Fail, since no listening socket is expected."""
    raise AssertionError


def pass_on_often(channel: socket.socket, sock: socket.socket) -> None:
    """Pass one connection more often than the channel has room for."""
    for _ in range(100_000):
        pass_on(channel, PASSED, sock)


async def test_a_connection_arrives_with_what_is_known_of_it() -> None:
    """A passed connection arrives with its client's bytes and the data known about it."""
    supervisor, worker = socket_pair()
    taken: list[tuple[PassedConnection, socket.socket]] = []
    lost: list[PassedConnection] = []
    passed = PassedConnections(worker, lambda connection, sock: taken.append((connection, sock)), lost.append, kept_none)
    client, accepted = socket.socketpair()
    pass_on(supervisor, PASSED, accepted)
    accepted.close()
    await until(lambda: bool(taken))
    ((connection, sock),) = taken
    assert connection == PASSED
    client.send(b"from the client")
    assert sock.recv(100) == b"from the client"
    for one in (client, sock, supervisor):
        one.close()
    passed.close()


async def test_many_connections_arrive_in_order() -> None:
    """Connections beyond what one turn of the event loop takes arrive in order."""
    supervisor, worker = socket_pair()
    supervisor.setblocking(False)
    taken: list[int | None] = []
    lost: list[PassedConnection] = []

    def take(connection: PassedConnection, sock: socket.socket) -> None:
        taken.append(connection.node_id)
        sock.close()

    passed = PassedConnections(worker, take, lost.append, kept_none)
    count = 3 * TURN
    for number in range(count):
        client, accepted = socket.socketpair()
        head = PassedConnection("edge", number, ("192.0.2.1", 1), 0, (-1, "192.0.2.1"), int(socket.AF_UNIX), b"")
        while True:
            try:
                pass_on(supervisor, head, accepted)
                break
            except BlockingIOError:
                await asyncio.sleep(0)
        accepted.close()
        client.close()
    await until(lambda: len(taken) == count)
    assert taken == list(range(count))
    passed.close()
    supervisor.close()


async def test_a_hello_that_is_as_long_as_hellos_may_be_is_passed_on() -> None:
    """A connection is passed with the longest ClientHello and the bytes read behind it, more than 64 KiB."""
    supervisor, worker = socket_pair()
    taken: list[PassedConnection] = []
    lost: list[PassedConnection] = []

    def take(connection: PassedConnection, sock: socket.socket) -> None:
        taken.append(connection)
        sock.close()

    passed = PassedConnections(worker, take, lost.append, kept_none)
    client, accepted = socket.socketpair()
    connection = PassedConnection(
        "edge", None, ("192.0.2.1", 1), 0, (-1, "192.0.2.1"), int(socket.AF_UNIX), bytes(2 * HELLO_BYTES_MAX + READ_BYTES)
    )
    pass_on(supervisor, connection, accepted)
    accepted.close()
    await until(lambda: bool(taken))
    assert taken == [connection]
    client.close()
    passed.close()
    supervisor.close()


async def test_a_connection_for_which_there_is_no_descriptor_is_told() -> None:
    """A worker without a free descriptor reports the connection as lost, and takes the next one when it can."""
    supervisor, worker = socket_pair()
    taken: list[PassedConnection] = []
    lost: list[PassedConnection] = []

    def take(connection: PassedConnection, sock: socket.socket) -> None:
        taken.append(connection)
        sock.close()

    passed = PassedConnections(worker, take, lost.append, kept_none)
    client, accepted = socket.socketpair()
    pass_on(supervisor, PASSED, accepted)
    with few_descriptors(0):
        await until(lambda: bool(lost))
    assert (lost, taken) == ([PASSED], [])
    pass_on(supervisor, PASSED, accepted)
    await until(lambda: bool(taken))
    for one in (client, accepted, supervisor):
        one.close()
    passed.close()


async def test_a_worker_that_takes_nothing_does_not_block_the_supervisor() -> None:
    """A full channel raises BlockingIOError in the supervisor, which keeps the connection."""
    supervisor, worker = socket_pair()
    supervisor.setblocking(False)
    client, accepted = socket.socketpair()
    with pytest.raises(BlockingIOError):
        pass_on_often(supervisor, accepted)
    assert accepted.fileno() >= 0
    for one in (supervisor, worker, client, accepted):
        one.close()


async def test_duplicates_of_what_listens_arrive() -> None:
    """Duplicates of a listening port and of the meeting socket arrive, and the duplicate of the port accepts clients."""
    supervisor, worker = socket_pair()
    kept: list[tuple[PassedPort | PassedHandoverSocket, socket.socket]] = []
    passed = PassedConnections(worker, lambda _connection, sock: sock.close(), lambda _connection: None, lambda *one: kept.append(one))
    port = socket.create_server(("127.0.0.1", 0))
    pass_on(supervisor, PassedPort("edge", "127.0.0.1:9092", int(port.family)), port)
    handover_listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pass_on(supervisor, PassedHandoverSocket(), handover_listener)
    await until(lambda: len(kept) == 2)
    assert [what for what, _ in kept] == [PassedPort("edge", "127.0.0.1:9092", int(port.family)), PassedHandoverSocket()]
    duplicate = kept[0][1]
    client = socket.create_connection(port.getsockname())
    port.close()
    accepted, _ = duplicate.accept()
    accepted.send(b"x")
    assert client.recv(1) == b"x"
    for one in (client, accepted, duplicate, handover_listener, kept[1][1], supervisor):
        one.close()
    passed.close()


async def test_the_end_of_the_supervisor_ends_the_channel() -> None:
    """The worker closes the channel when the supervisor ends."""
    supervisor, worker = socket_pair()
    PassedConnections(worker, lambda _connection, sock: sock.close(), lambda _connection: None, kept_none)
    supervisor.close()
    await until(lambda: worker.fileno() < 0)
