"""Requests that create or delete topics in memory: a client, its connection through the proxy, and a broker with topics."""

from tests.support.frames.topic_frames import Answer, read_answer
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.topic_model import TopicModel, split


class Talk:
    """One client, its connection, and a broker that has topics."""

    def __init__(self, proxy: ProxyFixture, model: TopicModel) -> None:
        self.proxy = proxy
        self.model = model
        self.peer: Peer = proxy.connect()

    def says(self, *frames: bytes) -> bytes:
        """The client sends, the broker answers whatever reaches it; returns what the client gets now."""
        self.peer.client.arrive(b"".join(frames))
        self.pump()
        return self.peer.client.take()

    def pump(self) -> None:
        """Let the broker answer until nothing reaches it any more."""
        while asked := self.peer.broker.take():
            for frame in split(asked):
                self.peer.broker.arrive(self.model.answer(frame))

    def asks(self, key: int, version: int, frame: bytes) -> Answer:
        """One request and its answer, which has to be there at once."""
        return read_answer(key, version, self.says(frame))

    @property
    def keys(self) -> list[int]:
        """Which APIs the broker was asked, in order."""
        return [key for key, *_ in self.model.asked]

    @property
    def tokens(self) -> float:
        """The balance of the client's bucket."""
        (group,) = self.proxy.scope.mutation.groups()
        return group.tokens(self.proxy.now_ms)
