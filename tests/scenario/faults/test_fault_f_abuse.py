"""Rows F5, F6, F7 and F10: clients that reconnect, that change their client-id, that have none, and thousands that are idle."""

from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import PRODUCE, api_versions_request, correlation_id_of, produce_of_size, throttle_ms_of
from tests.support.scripted.scripted_sockets import for_a_while, until

BOUND = 10_000.0
BURST = 200_000
"""Ten seconds of the bound more than the first window allows."""
HALF = 60_000
FRAME_BYTES = 1_500
IDLE = 2_000
AT_ONCE = 100
KIB = 1024


async def ask_produce(client: ScriptedClient, size: int, client_id: bytes | None) -> int:
    """Produce `size` bytes and return the throttle time in the response."""
    return throttle_ms_of(PRODUCE, 7, await client.ask(produce_of_size(size, 1, client_id=client_id)))


def muted(sluice: RunningGateway) -> int:
    """Return the number of connections that are not read because of a throttle."""
    return sum("throttle" in connection.client.paused_for for connection in sluice.connections)


async def test_f05_a_new_connection_finds_the_old_throttle() -> None:
    """The first request of a new connection waits until the throttle of the client's previous connection is over."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=BOUND)) as sluice:
        for at in range(4):
            client = await sluice.client()
            if at == 0:
                assert await ask_produce(client, BURST, b"escaper") > 9_000
            await client.send(produce_of_size(1_000, 2, client_id=b"escaper"))
            await until(lambda: muted(sluice) == 1)
            await for_a_while(0.1, lambda at=at: len(broker.connections[-1].requests) == (at == 0))
            client.reset()
            sluice.sweep()
            await until(lambda: not sluice.connections)
        (group,) = sluice.groups()
        assert group.recorded_total == BURST - 4
        assert [len(connection.requests) for connection in broker.connections] == [1, 0, 0, 0]


async def test_f06_changing_names_ends_in_one_group() -> None:
    """When the table of groups is full, all further client-ids share one group with the bound of a single client."""
    groups_max = 40
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=BOUND)) as sluice:
        first = await sluice.client()
        reported = [await ask_produce(first, FRAME_BYTES, b"name-0")]
        (scope,) = [scope for scope in sluice.app.scopes.all() if list(scope.produce.groups())]
        scope.produce.groups_max = groups_max
        for at in range(1, groups_max + 60):
            client = await sluice.client()
            reported.append(await ask_produce(client, FRAME_BYTES, b"name-%d" % at))
            client.close()
        assert len(sluice.groups()) == groups_max
        (overflow,) = scope.produce._overflow.values()
        assert overflow.recorded_total == 60 * (FRAME_BYTES - 4)
        assert overflow.bound == BOUND
        assert max(reported) == 0
        assert scope.produce.groups_overflowed == 60
        for size, client_id in ((HALF, b"one-more"), (FRAME_BYTES, b"and-another")):
            assert await ask_produce(await sluice.client(), size, client_id) > 1_000
        assert overflow.recorded_total == 61 * (FRAME_BYTES - 4) + HALF - 4


async def test_f07_no_name_is_no_way_out() -> None:
    """A null and an empty client-id share the default quota, so a change between the two avoids no throttle."""
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=quotas(produce=BOUND)) as sluice:
        reported = []
        for client_id in (None, b"", None, b""):
            client = await sluice.client()
            reported.append(await ask_produce(client, HALF, client_id))
        assert reported[0] == 0
        assert all(throttle_ms > 500 for throttle_ms in reported[1:])
        assert [group.recorded_total for group in sluice.groups()] == [4 * (HALF - 4)]


async def test_f10_idle_connections_cost_little_and_nothing_else() -> None:
    """Two thousand idle connections take at most 150 KiB each and no buffered bytes, and another client is served meanwhile."""
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1e9)) as sluice:
        before = _resident_bytes()
        for _ in range(0, IDLE, AT_ONCE):
            some = [await sluice.client() for _ in range(AT_ONCE)]
            for client in some:
                await client.send(api_versions_request(1))
            for client in some:
                assert correlation_id_of(await client.read_frame()) == 1
        assert len(await sluice.until_connections(IDLE)) == IDLE
        # clients and broker are in this process too: the limit holds for the memory of all three
        assert (_resident_bytes() - before) / IDLE <= 150 * KIB
        assert sum(connection.session.requests.pending.kept_bytes for connection in sluice.connections) == 0
        assert len(sluice.gateway.timers) == 0
        for _ in range(5):
            sluice.sweep()
        assert sluice.closes == {}
        busy = await sluice.client()
        for number in range(100):
            assert correlation_id_of(await busy.ask(api_versions_request(number))) == number
        for client in sluice.clients:
            client.close()
        await until(lambda: not sluice.connections)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 * KIB
