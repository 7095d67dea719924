"""Questions of a worker with synchronous answers. They are rare, and the supervisor answers each within a turn of its event loop.

A worker blocks its event loop until the answer comes, so it asks only for rare decisions that have to be exact: a new broker, a login of a
principal with a limit on connections, a change of topics under a quota. After a question times out, the worker sends none for a while and
decides by itself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from proxy.base.clock import now_ms
from proxy.telemetry import log
from proxy.workers.messaging.readable import ReadableSocket

ANSWER_S: Final = 0.25
SILENCE_MS: Final = 5_000
"""Time without questions after one that was not answered."""
QUESTION_BYTES_MAX: Final = 64 * 1024


class Question(msgspec.Struct, tag=True, array_like=True):
    """One question; its class is its tag."""


class BindBroker(Question):
    """Bind the ports of a broker on the listeners of a route; the answer is its ports, by listener."""

    route: int
    node_id: int
    host: str
    port: int


class EnterPrincipal(Question):
    """Count a connection of a principal; the answer says whether it is within the limit."""

    kind: str
    name: str
    only_observes: bool


class BucketOf(msgspec.Struct, frozen=True, array_like=True):
    """A token bucket of controller mutations, with its settings; `key` has the tags of its group."""

    key: tuple[tuple[str, str], ...]
    bound: float
    num_samples: int
    window_ms: int


class UseBuckets(Question):
    """Refill the buckets of a group and its parents, then take `permits` from each; the answer is the balance that each had before.

    Attributes:
        permits: mutations to take from each bucket; a negative number returns them.
        now_ms: time of the question, monotonic; all processes of a host have the same clock.
        strict: whether nothing is taken while one of the balances is below zero.
    """

    buckets: list[BucketOf]
    permits: float
    now_ms: int
    strict: bool


class _Numbered(msgspec.Struct, frozen=True, array_like=True):
    number: int
    body: msgspec.Raw


AnyQuestion = BindBroker | EnterPrincipal | UseBuckets
_ENCODER: Final = msgspec.msgpack.Encoder()
_NUMBERED: Final = msgspec.msgpack.Decoder(_Numbered)
_QUESTION: Final = msgspec.msgpack.Decoder(AnyQuestion)
T = TypeVar("T")


class Questions:
    """Sends the questions of a worker."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.settimeout(ANSWER_S)
        self._number = 0
        self._silent_until_ms = 0

    def ask(self, question: AnyQuestion, answer: msgspec.msgpack.Decoder[T]) -> T | None:
        """Return the answer, decoded by `answer`; None: the supervisor has not answered in time, or no question is sent now."""
        if now_ms() < self._silent_until_ms:
            return None
        self._number += 1
        try:
            self._channel.send(_ENCODER.encode(_Numbered(self._number, msgspec.Raw(_ENCODER.encode(question)))))
            while True:
                received = _NUMBERED.decode(self._channel.recv(QUESTION_BYTES_MAX))
                if received.number == self._number:  # otherwise it is a late answer to an earlier question
                    return answer.decode(received.body)
        except (OSError, msgspec.DecodeError) as error:
            self._silent_until_ms = now_ms() + SILENCE_MS
            log.warning("supervisor_silent", limit_key="supervisor_silent", question=type(question).__name__, problem=str(error))
            return None


class QuestionResponder:
    """Answers the questions of one worker, in the supervisor."""

    def __init__(self, channel: socket.socket, answer: Callable[[AnyQuestion], Any]) -> None:
        self._channel = channel
        self._answer = answer
        self._readable_socket = ReadableSocket(channel, self._readable)

    def close(self) -> None:
        """Stop answering."""
        self._readable_socket.close()

    def _readable(self) -> None:
        try:
            data = self._channel.recv(QUESTION_BYTES_MAX)
            if not data:
                self.close()
                return
            received = _NUMBERED.decode(data)
            body = _ENCODER.encode(self._answer(_QUESTION.decode(received.body)))
            self._channel.send(_ENCODER.encode(_Numbered(received.number, msgspec.Raw(body))))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
