"""Clients that change their client-id without end, and which clients share a budget because of it."""

import pytest

from proxy.base.host_port import HostPort
from proxy.base.networks import networks_of
from proxy.config.model import Listener
from tests.support.ports import free_bootstrap_port
from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.proxy_headers import v2_header
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import PRODUCE, produce_of_size, throttle_ms_of
from tests.support.scripted.scripted_sockets import HOST

BALANCER = "127.9.9.9"
BOUND = 10_000.0
FRAME_BYTES = 2_000
BURST = 60_000
"""Over the bound together with the bytes of the flood's client-ids, and within it alone."""
NAMES = 60
NAMES_MAX = 20


async def ask_produce(client: ScriptedClient, size: int, client_id: bytes) -> int:
    """Produce and return the throttle time in the response."""
    return throttle_ms_of(PRODUCE, 7, await client.ask(produce_of_size(size, 1, client_id=client_id)))


@pytest.mark.parametrize(
    ("flood_from", "is_one"),
    [
        pytest.param(["192.0.2.1"], True, id="an-address"),
        pytest.param(["192.0.2.1", "::ffff:192.0.2.1"], True, id="an-address-in-two-forms"),
        pytest.param(["2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"], True, id="a-network"),
        pytest.param(["2001:db8::1", "2001:db8:0:1::1"], False, id="two-networks"),
    ],
)
@pytest.mark.parametrize("full", ["its-share", "the-table"])
async def test_names_without_end_are_the_affair_of_who_makes_them(flood_from: list[str], full: str, *, is_one: bool) -> None:
    """Client-ids beyond the share of an address, or beyond a full table, share one limit per address; other addresses keep their own."""
    listener = Listener(address=HostPort(HOST, free_bootstrap_port()), name="test", proxy_protocol_from=networks_of(["127.9.0.0/16"]))
    async with (
        ScriptedBroker() as broker,
        open_gateway(broker, mode="mute", table=quotas(produce=BOUND), listeners=(listener,)) as sluice,
    ):

        async def come(host: str, client_id: bytes, size: int = FRAME_BYTES) -> int:
            client = await sluice.client(source=BALANCER)
            await client.send(v2_header((host, 7), ("::1" if ":" in host else HOST, 9092)))
            reported = await ask_produce(client, size, client_id)
            client.close()
            return reported

        await come(flood_from[0], b"name-0")
        (manager,) = [scope.produce for scope in sluice.app.scopes.all() if list(scope.produce.groups())]
        if full == "the-table":
            manager.groups_max = NAMES_MAX
        else:
            manager.groups_per_user_max = NAMES_MAX if is_one else NAMES_MAX // 2
        for number in range(1, NAMES):
            assert await come(flood_from[number % len(flood_from)], b"name-%d" % number) == 0
        shared = {group.tags["address"]: group for group in manager._overflow.values()}
        assert (len(shared) == 1) is is_one
        assert sum(group.recorded_total for group in shared.values()) == (NAMES - NAMES_MAX) * (FRAME_BYTES - 4)
        assert (await come(flood_from[0], b"one-more", BURST) > 0) is is_one
        assert await come("198.51.100.9", b"etl", BURST) == 0
