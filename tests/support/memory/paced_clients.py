"""Clients of a paced group that always have more to send, on the clock that the test moves."""

from typing import NamedTuple

from tests.support.frames.kafka_frames import produced
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_of


class Load(NamedTuple):
    """Connections of one member, each with one request in flight."""

    connections: int
    size: int
    pause_ms: int = 0
    """Between an answer and the next request."""
    client_id: str = "etl"


class Client:
    """A connection that always has more to send.

    Attributes:
        number: of its requests.
        before: that number at a time that a test chooses.
    """

    def __init__(self, proxy: ProxyFixture, peer: Peer, load: Load, used: list[tuple[int, int]]) -> None:
        self._proxy, self._peer, self._load, self._used = proxy, peer, load, used
        self.number = self.before = 0
        peer.broker.write = peer.connection.client.write_peer = self._goes  # type: ignore[method-assign]

    def send(self) -> None:
        """Send the next request."""
        self.number += 1
        self._peer.client.arrive(produce_of(self._load.size, self.number, client_id=self._load.client_id))

    def _goes(self, data: bytes | memoryview) -> None:
        self._used.append((self._proxy.now_ms, len(data) - 4))
        self._proxy.loop.call_later(0.005, self._answer)

    def _answer(self) -> None:
        self._peer.broker.arrive(produced(self.number, version=PRODUCE_VERSION))
        self._proxy.loop.call_later(self._load.pause_ms / 1_000, self.send)
