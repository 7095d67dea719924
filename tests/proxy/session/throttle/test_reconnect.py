"""Row F5: a client closes its muted connection and reconnects, again and again, for two minutes."""

import heapq

import pytest

from proxy.enforcement.groups.child_groups import enforced_group
from proxy.enforcement.mode import Mode
from quota.entity import ANONYMOUS, ClientQuotaEntity, ClientQuotaType
from quota.manager import ClientQuotaManager
from tests.support.frames.kafka_frames import CLIENT_ID, produced
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_of
from tests.support.quota_calls import record

BOUND = 100_000.0
REQUEST_BYTES = 1_000
ANSWER_MS = 5
PATIENCE_MS, AWAY_MS = 50, 20
"""The client closes a connection on which a response takes longer than the first time, and reconnects after the second."""
SETTLED_MS, END_MS = 30_000, 120_000


class Impatient:
    """A client that always has a request to send and reconnects when its response is late."""

    def __init__(self, proxy: ProxyFixture) -> None:
        self.proxy = proxy
        self.correlation_id = 0
        self.connections = 0
        self.passed: list[tuple[int, int]] = []
        self.peer = self._connect()

    def turn(self) -> None:
        """Send one request and wait for its response; reconnect if it does not arrive in time."""
        proxy = self.proxy
        self.correlation_id += 1
        self.peer.client.arrive(produce_of(REQUEST_BYTES, self.correlation_id))
        waited = 0
        while waited <= PATIENCE_MS:
            for number in self.peer.forwarded():
                self.passed.append((proxy.now_ms, REQUEST_BYTES))
                proxy.loop.call_later(ANSWER_MS / 1000, self.peer.broker.arrive, produced(number, version=PRODUCE_VERSION))
            proxy.wait(1)
            waited += 1
            if self.correlation_id in self.peer.delivered():
                return
        self.peer.connection.client.connection_lost(None)
        proxy.wait(AWAY_MS)
        self.peer = self._connect()

    def _connect(self) -> Peer:
        self.connections += 1
        return self.proxy.connect()

    def bytes_between(self, start_ms: int, end_ms: int) -> int:
        """Return the bytes that were forwarded to the broker in this time."""
        return sum(size for at_ms, size in self.passed if start_ms <= at_ms < end_ms)


def kafka_lets_pass(start_ms: int) -> int:
    """Return the bytes that the same client could produce to a broker, which mutes each connection after its request."""
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group)
    manager.update_quota(ClientQuotaEntity(None, CLIENT_ID), BOUND)
    passed, turns = 0, [start_ms]
    while (now_ms := heapq.heappop(turns)) < start_ms + END_MS:
        wait_ms = record(manager, ANONYMOUS, CLIENT_ID, REQUEST_BYTES, now_ms + ANSWER_MS)
        passed += REQUEST_BYTES
        heapq.heappush(turns, now_ms + ANSWER_MS + min(wait_ms, PATIENCE_MS + AWAY_MS) + 1)
    return passed


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
def test_f05_reconnecting_buys_nothing_in_the_long_run(mode: Mode) -> None:
    """A client that reconnects whenever it is throttled is limited to the rate of its quota."""
    with ProxyFixture(produce=BOUND, mode=mode) as proxy:
        client = Impatient(proxy)
        start_ms = proxy.now_ms
        while proxy.now_ms < start_ms + END_MS:
            client.turn()
        settled = client.bytes_between(start_ms + SETTLED_MS, start_ms + END_MS) * 1_000 / (END_MS - SETTLED_MS)
        total = client.bytes_between(start_ms, start_ms + END_MS)
    assert client.connections > 300
    assert 0.90 <= settled / BOUND <= 1.05
    assert 0.95 <= total / kafka_lets_pass(start_ms) <= 1.05
