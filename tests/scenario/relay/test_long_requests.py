"""Long requests are read into memory that all connections share, and every byte reaches its own broker."""

import gc
import random

from proxy.net.connection import Connection
from proxy.net.relay.flow import TO_BROKER_LIMITS_BYTES
from proxy.net.relay.long_frame_memory import STEP_BYTES, WHOLE_BYTES, WHOLE_KEPT_MAX, LongFrameMemory
from proxy.net.relay.long_frames import HEAD_READ_BYTES, LongFrameReader
from tests.scenario.listeners.test_sasl import TABLE, TOKEN, declared, logged_in, says_yes
from tests.support.frames import sasl_frames
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import correlation_id_of, produce_request
from tests.support.scripted.scripted_sockets import until

_random = random.Random(11)


def some_request(correlation_id: int, size_bytes: int) -> bytes:
    """Return a Produce request with random records."""
    return produce_request(correlation_id, _random.randbytes(size_bytes))


def reads_long(connection: Connection) -> bool:
    """Return whether the client's socket is read into the shared memory."""
    transport = connection.client.transport
    return transport is not None and isinstance(transport.get_protocol(), LongFrameReader)


async def test_requests_of_all_sizes_arrive_as_they_were_sent() -> None:
    """Requests of all sizes arrive unchanged; long ones are read into the shared memory, and short ones are not."""
    sizes = [3_000_000, 700_000, HEAD_READ_BYTES, STEP_BYTES, WHOLE_BYTES + 1, 1_000_000, 2_000_000, 40_000, 1_500_000, 10, 900_000, 5]
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        for number, size in enumerate(sizes):
            sent = some_request(number, size)
            assert correlation_id_of(await client.ask(sent)) == number
            assert broker.requests[-1].frame == sent
            (connection,) = sluice.connections
            assert connection.broker.transport is not None
            if size == 3_000_000:
                assert reads_long(connection)
                assert connection.broker.transport.get_write_buffer_limits()[1] == 0
            if size < 1_000:
                assert not reads_long(connection)
                assert connection.broker.transport.get_write_buffer_limits()[1] == TO_BROKER_LIMITS_BYTES[0]


async def test_pipelined_requests_share_reads() -> None:
    """Pipelined long and short requests arrive unchanged, although one read may contain the end of one and the head of the next."""
    sent = [some_request(number, 600_000 if number % 3 else 200) for number in range(15)]
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(b"".join(sent))
        assert [correlation_id_of(await client.read_frame()) for _ in sent] == list(range(15))
        assert [request.frame for request in broker.requests] == sent


async def test_a_broker_that_reads_late_gets_its_own_bytes() -> None:
    """Bytes that a broker has not read are not overwritten by the requests of other clients."""
    async with ScriptedBroker(receive_bytes=4_096) as broker, open_gateway(broker) as sluice:
        late, quick = await sluice.client(), await sluice.client()
        await late.ask(some_request(1, 700_000))
        held = await broker.connection(0)
        held.may_read.clear()
        sent = some_request(2, 40_000_000)
        at = 0
        (connection,) = [one for one in sluice.connections if reads_long(one)]
        while not connection.client.released_bytes:
            at += late.send_some(sent[at : at + 100_000])
            await quick.ask(some_request(3, 10))
        for number in range(10):
            await quick.ask(some_request(number, 1_500_000))
        held.may_read.set()
        await late.send(sent[at:])
        assert correlation_id_of(await late.read_frame()) == 2
        assert held.requests[-1].frame == sent
        assert connection.client.released_bytes == 0


async def test_a_client_that_leaves_in_a_long_request() -> None:
    """A client that closes or resets in the body of a long request ends its own connections only."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        staying = await sluice.client()
        for leaves in (ScriptedClient.close, ScriptedClient.reset, ScriptedClient.half_close):
            client = await sluice.client()
            await client.ask(some_request(1, 2_000_000))
            await client.send(some_request(2, 2_000_000)[:1_500_000])
            leaves(client)
            await sluice.until_connections(1)
            assert correlation_id_of(await staying.ask(some_request(3, 800_000))) == 3
        assert [len(connection.requests) for connection in broker.connections] == [3, 1, 1, 1]


async def test_a_login_is_renewed_between_long_requests() -> None:
    """A token after long requests is read into the buffer that is overwritten, and long requests after it are read as before."""
    async with ScriptedBroker(says_yes) as broker, open_gateway(broker, listeners=declared(), table=TABLE, serves=False) as sluice:
        client = await logged_in(sluice)
        (connection,) = sluice.connections
        for number in (10, 20):
            sent = some_request(number, 2_000_000)
            await client.ask(sent)
            assert broker.requests[-1].frame == sent
            assert reads_long(connection)
            await client.ask(sasl_frames.handshake("PLAIN"))
            assert connection.client.login_bytes
            await client.ask(sasl_frames.authenticate(TOKEN))
            assert not connection.client.login_bytes


async def test_a_token_behind_a_long_request_is_overwritten() -> None:
    """The shared memory does not keep a token that a client sends behind a long request without waiting for responses."""
    ahead = some_request(10, 300_000) + sasl_frames.handshake("PLAIN") + sasl_frames.authenticate(TOKEN)
    async with ScriptedBroker(says_yes) as broker, open_gateway(broker, listeners=declared(), table=TABLE, serves=False) as sluice:
        client = await logged_in(sluice)
        await client.ask(some_request(9, 2_000_000))
        (connection,) = sluice.connections
        assert reads_long(connection)
        await client.send(ahead)
        await until(lambda: broker.requests[-1].frame.endswith(TOKEN))
        assert TOKEN not in bytes(connection.long_frame_memory.of(STEP_BYTES))


def test_few_transports_keep_large_memory() -> None:
    """While `WHOLE_KEPT_MAX` transports keep memory of `WHOLE_BYTES`, reads are of `STEP_BYTES`."""
    memory = LongFrameMemory()
    kept = []
    for _ in range(WHOLE_KEPT_MAX):
        assert memory.read_bytes(STEP_BYTES + 1) == WHOLE_BYTES
        kept.append(memory.of(WHOLE_BYTES)[:10])
        memory.release(WHOLE_BYTES)
    assert memory.read_bytes(STEP_BYTES + 1) == STEP_BYTES
    del kept[0]
    gc.collect()
    assert memory.read_bytes(STEP_BYTES + 1) == WHOLE_BYTES
    assert memory.read_bytes(STEP_BYTES) == STEP_BYTES


def test_a_read_after_a_release_uses_other_memory() -> None:
    """Given-up memory is not read into again."""
    memory = LongFrameMemory()
    for size in (STEP_BYTES, WHOLE_BYTES):
        before = memory.of(size)
        assert memory.of(size).obj is before.obj
        memory.release(size)
        assert memory.of(size).obj is not before.obj
