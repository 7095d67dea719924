"""Requests that create or delete topics, in memory: a client, its connection through the proxy, and a broker with topics."""

from tests.support.frames.topic_frames import Answer, read_answer
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.topic_model import TopicModel, split


class Talk:
    """One client, its connection, and a broker with topics."""

    def __init__(self, proxy: ProxyFixture, model: TopicModel) -> None:
        self.proxy = proxy
        self.model = model
        self.peer: Peer = proxy.connect()

    def says(self, *frames: bytes) -> bytes:
        """Send as the client, answer as the broker; return what reaches the client now."""
        self.peer.client.arrive(b"".join(frames))
        self.pump()
        return self.peer.client.take()

    def pump(self) -> None:
        """Let the broker answer until no request reaches it."""
        while asked := self.peer.broker.take():
            for frame in split(asked):
                self.peer.broker.arrive(self.model.answer(frame))

    def asks(self, key: int, version: int, frame: bytes) -> Answer:
        """Send one request and return its answer, which must arrive at once."""
        return read_answer(key, version, self.says(frame))

    @property
    def keys(self) -> list[int]:
        """Return the APIs of the requests that the broker received, in order."""
        return [key for key, *_ in self.model.asked]

    @property
    def tokens(self) -> float:
        """The tokens of the client's bucket."""
        (group,) = self.proxy.scope.mutation.groups()
        return group.tokens(self.proxy.now_ms)
