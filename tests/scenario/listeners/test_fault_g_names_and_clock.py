"""Rows G5, G1 and F8 through a running gateway: hostile client-ids in the log, a wall clock that jumps, and thousands of client-ids."""

import asyncio
import io
import json
import time
import unicodedata
import urllib.request

import pytest

from proxy.base.host_port import HostPort
from proxy.config.model import Admin
from proxy.telemetry import log
from tests.support.frames.kafka_frames import throttle_ms
from tests.support.ports import free_port
from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import correlation_id_of, produce_of_size, produce_request
from tests.support.scripted.scripted_sockets import HOST, until

HOSTILE = [
    *(chr(code) for code in range(0x20)),
    'x","reason":"forged',
    "\r\n{}",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "\x7f",
    "\u2028\u2029",
    "\u202e\u2066reversed",
    "\u200b\ufeff",
    "\U000e0041",
    "</script>",
    "%s%n{0}\\",
    "a" * 10_000,
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
]
SERIES_MAX = 2_000
IDS = 3_000


async def test_g05_hostile_client_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each closed connection is logged as one line of valid JSON, whose client-ids are cut and contain no control character."""
    monkeypatch.setattr(log, "LINES_PER_SECOND_MAX", 1_000)
    stream = io.StringIO()
    handler = log.start_logging("info", stream)
    try:
        async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
            for number, name in enumerate(HOSTILE):
                client = await sluice.client()
                assert correlation_id_of(await client.ask(produce_request(number, client_id=name.encode()[:32_000]))) == number
                client.close()
                await until(lambda: not sluice.connections)
    finally:
        log.stop_logging(handler)
    lines = stream.getvalue().split("\n")
    assert lines.pop() == ""
    ends = []
    for line in lines:
        assert not any(unicodedata.category(char).startswith("C") or char in "\u2028\u2029" for char in line), ascii(line)
        event = json.loads(line)
        if event["event"] == "connection_closed":
            ends.append(event)
    assert len(ends) >= len(HOSTILE)
    assert {event["reason"] for event in ends} <= {"client_closed", "client_reset"}
    assert all(len(name) <= 300 for event in ends for name in event["client_ids"])


@pytest.mark.parametrize("jump_s", [3_600, -3_600, 1e9])
async def test_g01_the_wall_clock_jumps(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jump of the wall clock changes neither a throttle nor a deadline, because both use the monotonic clock."""
    wall = time.time
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1_000)) as sluice:
        client = await sluice.client()
        await client.send(produce_of_size(10_304, 1, version=7) + produce_request(2, version=7))
        await until(lambda: any("throttle" in one.broker.paused_for for one in sluice.connections))
        monkeypatch.setattr(time, "time", lambda: wall() + jump_s)
        held_ms = sluice.connections[0].session.responses.held.until_ms
        sluice.sweep()
        first, second = await client.read_frames(2)
        assert [correlation_id_of(first), correlation_id_of(second)] == [1, 2]
        assert throttle_ms(first, 0, 7) == 0, "waited out as long as it was to be"
        assert held_ms > 0
        assert len(sluice.connections) == 1
        monkeypatch.undo()


async def test_f08_very_many_client_ids() -> None:
    """With 3,000 client-ids the metrics keep their limit of series, and clients are served during a scrape."""
    admin = HostPort(HOST, free_port())
    async with ScriptedBroker() as broker, open_gateway(broker, admin=Admin(address=admin), table=quotas(produce=1e9)) as sluice:
        client, other = await sluice.client(), await sluice.client()
        for first in range(0, IDS, 50):
            names = range(first, first + 50)
            await client.send(b"".join(produce_request(number, client_id=b"id-%d" % number) for number in names))
            await client.read_frames(50)
        scrape = asyncio.create_task(asyncio.to_thread(_scrape, admin))
        served = 0
        while not scrape.done() or served < 20:
            assert correlation_id_of(await other.ask(produce_request(served))) == served
            served += 1
        text = await scrape
        series = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert len(series) <= SERIES_MAX + 500
        of_clients = [line for line in series if "client_id=" in line]
        assert len(of_clients) <= SERIES_MAX
        assert any("__other__" in line for line in of_clients)
        assert max(len(label) for line in of_clients for label in line.split('"')[1::2]) <= 128
        assert len(sluice.app.usages) >= IDS
        await asyncio.get_running_loop().shutdown_default_executor()
        sluice.allow_descriptors(4)


def _scrape(admin: HostPort) -> str:
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
        return text
