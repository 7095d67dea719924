"""Replays Kafka's mute states of a channel on a live connection. Source: Kafka 3.8 `KafkaChannel.ChannelMuteState`.

No variable stores the state; it follows from the connection. The client is muted while its channel is paused, throttled until the
throttle time is over, and a response is pending while a request is in flight or its answer is held. Events go into the session as bytes
and as time, and `Connection.settle` carries out what follows from them.

Kafka throws an exception for an event that a state does not have. Here such an event changes nothing: either the session refuses it (an
answer that no request waits for), or it keeps it (a request that comes while one is in flight).
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from protocol.errors import ProtocolError
from proxy.base.clock import NS_PER_MS
from tests.support.frames.kafka_frames import produced
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import BOUND, PRODUCE_VERSION, produce_for
from tests.vectors.compare import Case, differences, rows

THROTTLE_MS = 2_000
FREE_BOUND = 1e9
DELAY_MAX_MS = 500
"""An answer is held for part of the throttle time, so that a response is sent while its client is throttled."""


class MutedChannel:
    """A connection whose group exceeds its bound with every request, in the state that `prepare` names."""

    def __init__(self, proxy: ProxyFixture) -> None:
        self._proxy = proxy
        self._connection = proxy.connect().connection
        self._session = self._connection.session
        self._sent = 0  # number of sent requests; request n has correlation id n
        self._answered = 0
        self._events: Final[dict[str, Callable[[], object]]] = {
            "REQUEST_RECEIVED": self._receive_request,
            "RESPONSE_SENT": self._send_response,
            "THROTTLE_STARTED": self._start_throttle,
            "THROTTLE_ENDED": self._end_throttle,
            "mute()": self._connection.broker.pause_writing,
            "maybeUnmute()": self._maybe_unmute,
        }

    def prepare(self, state: str) -> None:
        """Bring a new connection into a state."""
        if state == "NOT_MUTED":
            return
        self._receive_request()
        self._start_throttle()
        self._connection.settle(self._proxy.now_ms)
        self._send_response()
        if state == "MUTED_AND_THROTTLED":
            return
        self._end_throttle()
        if state == "MUTED":
            return
        self._receive_request()
        self._receive_request()  # a client that may send one request at a time is muted when it sends the next one
        if state == "MUTED_AND_THROTTLED_AND_RESPONSE_PENDING":
            self._start_throttle()

    def play(self, event: str) -> dict[str, Any]:
        """Play an event; return its result in the columns of the table."""
        before = self.state
        try:
            self._events[event]()
        except ProtocolError:
            assert self.state == before, "a refused event changed the state"
        is_call = event.endswith("()")
        return {
            "next_state": self.state if is_call or self.state != before else None,
            "reads_enabled_after": self._is_read,
            "returned": self._is_read if event == "maybeUnmute()" else None,
        }

    @property
    def state(self) -> str:
        """Return the state by Kafka's name."""
        if self._is_read:
            return "NOT_MUTED"
        session = self._session
        throttled = "_AND_THROTTLED" if self._proxy.now_ms < session.throttle.read_off_until_ms else ""
        pending = "_AND_RESPONSE_PENDING" if session.in_flight or session.responses.held.until_ms else ""
        return f"MUTED{throttled}{pending}"

    @property
    def _is_read(self) -> bool:
        return not self._connection.client.pauses

    def _receive_request(self) -> None:
        self._sent += 1
        now_ms = self._proxy.now_ms
        self._session.requests.scan(produce_for(THROTTLE_MS, self._sent), now_ms, now_ms * NS_PER_MS)

    def _send_response(self) -> None:
        """Let the held answer leave at its time; an answer within the quota leaves at once."""
        held_until_ms = self._session.responses.held.until_ms
        if held_until_ms:
            self._proxy.loop.now_ms = held_until_ms
            self._connection.settle(held_until_ms)
            return
        self._proxy.set_quota(produce=FREE_BOUND)
        self._answer()

    def _start_throttle(self) -> None:
        """Let the next answer arrive: it exceeds the quota and is held."""
        self._proxy.set_quota(produce=BOUND)
        self._answer()

    def _answer(self) -> None:
        self._answered += 1
        now_ms = self._proxy.now_ms
        self._session.responses.scan(produced(self._answered, version=PRODUCE_VERSION), now_ms, now_ms * NS_PER_MS)

    def _end_throttle(self) -> None:
        """Advance the clock; no code has read it yet."""
        self._proxy.loop.now_ms = max(self._session.throttle.read_off_until_ms, self._proxy.now_ms + THROTTLE_MS)

    def _maybe_unmute(self) -> None:
        """Forget what the broker was sent, and settle the connection."""
        self._connection.broker.resume_writing()
        self._connection.settle(self._proxy.now_ms)


def run_mute_state(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Replay every event in every state, each on a connection of its own."""
    for index, row in rows(case, columns, "rows"):
        with ProxyFixture(produce=BOUND, delay_max_ms=DELAY_MAX_MS) as proxy:
            channel = MutedChannel(proxy)
            channel.prepare(row["state"])
            assert channel.state == row["state"], f"row {index}: prepared {channel.state} instead of {row['state']}"
            yield from differences(f"row {index}", row, channel.play(row["event"]))
