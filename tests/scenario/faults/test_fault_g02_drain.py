"""Row G2: SIGTERM while clients are throttled, a second SIGTERM, and SIGKILL."""

import asyncio
import signal

import pytest

from tests.support.frames.kafka_frames import answer_ids, throttle_ms
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import BrokerConnection, Hold, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import Request, correlation_id_of, fetch_request, produce_of_size, produce_request
from tests.support.scripted.scripted_sockets import End, guarded, until

BOUND = 1_000.0
VERSION = 7


def over_by(verdict_ms: int, correlation_id: int = 1, *, acks: int = 1) -> bytes:
    """Return a Produce that exceeds the quota by about `verdict_ms` when it is the first request of its group."""
    return produce_of_size(10_004 + verdict_ms, correlation_id, version=VERSION, acks=acks)


@pytest.mark.parametrize("verdict_ms", [4_000, 60_000])
async def test_g02_held_answers_leave_with_their_true_throttle_time(verdict_ms: int) -> None:
    """A drain sends held responses at once, and their throttle time is what is left of the wait."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=BOUND), serves=False) as sluice:
        client = await sluice.client()
        await client.send(over_by(verdict_ms) + produce_request(2, version=VERSION))
        await until(lambda: any("throttle" in one.broker.paused_for for one in sluice.connections))
        await guarded(sluice.app.drain())
        frames = [await client.read_frame(), await client.read_frame()]
        assert [correlation_id_of(frame) for frame in frames] == [1, 2]
        announced = throttle_ms(frames[0], 0, VERSION)
        assert verdict_ms - 3_000 <= announced <= verdict_ms + 1_000
        assert await client.read_to_end() == b""
        assert client.ended is End.FIN
        assert sluice.closes == {"drain": 1}


async def test_g02_in_flight_requests_are_answered() -> None:
    """A drain waits for the responses to requests in flight, and refuses new connections meanwhile."""
    hold = Hold()
    async with ScriptedBroker(hold) as broker, open_gateway(broker, serves=False) as sluice:
        client = await sluice.client()
        await client.send(b"".join(produce_request(number) for number in (1, 2, 3)))
        await (await broker.connection()).until_requests(3)
        port = sluice.port
        draining = asyncio.ensure_future(sluice.app.drain())
        await asyncio.sleep(0.05)
        with pytest.raises(ConnectionError):
            await sluice.client(port)
        assert client.take_waiting() == b""
        hold.release()
        assert sorted(answer_ids(await client.read_to_end())) == [1, 2, 3]
        await guarded(draining)
        assert sluice.closes == {"drain": 1}


@pytest.mark.parametrize("mode", ["delay", "mute"])
async def test_g02_requests_that_were_kept_back_go_on(mode: str) -> None:
    """A drain forwards the complete frames that were held back by a throttle, and their responses reach the client."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, table=quotas(produce=BOUND), serves=False) as sluice:
        client = await sluice.client()
        burst = over_by(60_000, 1, acks=0) + b"".join(produce_request(number) for number in (2, 3, 4))
        await client.send(burst)
        await until(lambda: any(one.session.requests.pending.kept_bytes for one in sluice.connections))
        await guarded(sluice.app.drain())
        assert answer_ids(await client.read_to_end()) == [2, 3, 4]
        assert (await broker.connection()).received == burst
        assert sluice.closes == {"drain": 1}


async def test_g02_a_frame_that_has_begun_may_end() -> None:
    """A drain reads and forwards the rest of a frame that is partly received, and its response reaches the client."""
    async with ScriptedBroker() as broker, open_gateway(broker, serves=False) as sluice:
        client = await sluice.client()
        frame = produce_of_size(5_000, 1)
        await client.send(frame[:2_000])
        await until(lambda: bool(broker.connections) and len(broker.connections[0].received) == 2_000)
        draining = asyncio.ensure_future(sluice.app.drain())
        await asyncio.sleep(0.05)
        await client.send(frame[2_000:])
        assert answer_ids(await client.read_to_end()) == [1]
        await guarded(draining)
        assert sluice.closes == {"drain": 1}


@pytest.mark.parametrize("mode", ["delay", "mute"])
async def test_g02_a_frame_that_had_begun_before_its_client_was_throttled_may_end(mode: str) -> None:
    """A drain reads the rest of a frame that a throttle had stopped in the middle, and its response reaches the client."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode=mode, table=quotas(produce=BOUND), serves=False) as sluice:
        client = await sluice.client()
        frame = produce_of_size(5_000, 2)
        await client.send(over_by(60_000, 1, acks=0) + frame[:2_000])
        await until(
            lambda: any(one.session.requests.pending.kept_bytes and "throttle" in one.client.paused_for for one in sluice.connections)
        )
        draining = asyncio.ensure_future(sluice.app.drain())
        await asyncio.sleep(0.05)
        await client.send(frame[2_000:])
        assert answer_ids(await client.read_to_end()) == [2]
        await guarded(draining)
        assert sluice.closes == {"drain": 1}


async def test_g02_who_takes_too_long_is_closed() -> None:
    """After `drain_ms` a connection that still waits is closed with `drain_deadline`."""
    hold = Hold()
    async with ScriptedBroker(hold) as broker, open_gateway(broker, limits={"drain_ms": 200}, serves=False) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1))
        await (await broker.connection()).until_requests(1)
        await guarded(sluice.app.drain())
        assert await client.read_to_end() == b""
        assert sluice.closes == {"drain_deadline": 1}
        hold.release()


async def test_g02_what_cannot_be_understood_does_not_stop_the_drain() -> None:
    """A held request that cannot be parsed closes its own connection during a drain, and other connections drain as usual."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=BOUND), serves=False) as sluice:
        bad, good = await sluice.client(), await sluice.client()
        await bad.send(over_by(60_000, 1, acks=0) + b"\0\0\0\x0a\x03\xe7\0\0\0\0\0\x02\xff\xff" + bytes(20))
        await until(lambda: any(one.session.requests.pending.kept_bytes for one in sluice.connections))
        await good.send(over_by(3_000))
        await until(lambda: any("throttle" in one.broker.paused_for for one in sluice.connections))
        await guarded(sluice.app.drain())
        assert answer_ids(await good.read_to_end()) == [1]
        assert await bad.read_to_end() == b""
        assert sluice.closes == {"api_unknown": 1, "drain": 1}


async def test_g02_the_process() -> None:
    """Held responses leave on SIGTERM; a second SIGTERM ends the process at once with code 0; after SIGKILL the client receives nothing."""
    hold = Hold()

    async def answer_first(connection: BrokerConnection, request: Request) -> None:
        await (connection.answer(request) if request.correlation_id == 1 else hold(connection, request))

    with temporary_directory("drain") as directory:
        table = write_quotas(directory / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": BOUND}])
        async with ScriptedBroker(answer_first) as broker:
            sluice = SluiceProcess(f"127.0.0.1:{broker.port}", quotas=table, name="drain")
            try:
                for turn, ends in enumerate(("once", "twice", "killed")):
                    await asyncio.to_thread(sluice.start)
                    client = await _client(sluice)
                    await client.send(over_by(60_000) + fetch_request(2))
                    at_broker = await broker.connection(turn)
                    await at_broker.until_requests(2)
                    assert client.take_waiting() == b""
                    sluice.send(signal.SIGKILL if ends == "killed" else signal.SIGTERM)
                    if ends == "once":
                        assert correlation_id_of(await client.read_frame()) == 1
                        hold.release()
                        assert answer_ids(await client.read_to_end()) == [2]
                        hold = Hold()
                    elif ends == "twice":
                        assert correlation_id_of(await client.read_frame()) == 1
                        sluice.send(signal.SIGTERM)
                        assert await client.read_to_end() == b""
                    else:
                        assert await client.read_to_end() == b""
                    code = await asyncio.to_thread(sluice.wait)
                    assert code == (-signal.SIGKILL if ends == "killed" else 0), ends
                    client.close()
            finally:
                await asyncio.to_thread(sluice.kill)
            assert "Traceback" not in sluice.output()


async def _client(sluice: SluiceProcess) -> ScriptedClient:
    return await ScriptedClient.connect(sluice.port)
