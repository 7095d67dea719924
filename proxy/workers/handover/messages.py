"""What is said at the socket of a supervisor. The two sides may be of different versions; `PROTOCOL` says which messages they know."""

from __future__ import annotations

from typing import Final

import msgspec

PROTOCOL: Final = 1


class Message(msgspec.Struct, tag=True, array_like=True):
    """One message; its class is its tag."""


# --- by who comes


class AskUpgrade(Message):
    """Start the new version; the answer is `UpgradeEnded`."""


class TakeOver(Message):
    """The process `pid` is to take the place of who answers; the answer is `Offer` or `Refused`."""

    protocol: int
    pid: int


class AskPorts(Message):
    """Accept no more and give what is to change hands; the answers are `Handed`, and `HandedAll`."""


class Taken(Message):
    """The new supervisor accepts."""


class Failed(Message):
    """The new supervisor ends: one line for each problem."""

    lines: list[str]


# --- by who answers


class UpgradeEnded(Message):
    """The process `pid` has taken over, or, None, did not for the reason in `problem`."""

    pid: int | None
    problem: str


class Offer(Message):
    """Who answers can be replaced. Its descriptors: the socket where it is met, the segment of shared usage, and the lock where
    its process holds it.

    Attributes:
        numbers: of the workers that go on for now.
    """

    numbers: list[int]


class Refused(Message):
    """Who answers cannot be replaced now."""

    problem: str


class BucketState(msgspec.Struct, array_like=True):
    """A token bucket of controller mutations: tags of its group, its settings, and its balance at a time in monotonic ms."""

    key: tuple[tuple[str, str], ...]
    num_samples: int
    window_ms: int
    bound: float
    tokens: float
    last_update_ms: int


class Handed(Message):
    """A part of what changes hands. Its descriptors are the ports.

    Attributes:
        ports: name of the listener and address, as it is configured.
        brokers: number of the route, node id, host, port.
    """

    ports: list[tuple[str, str]]
    brokers: list[tuple[int, int, str, int]]
    buckets: list[BucketState]


class HandedAll(Message):
    """Nothing more changes hands."""


AnyMessage = AskUpgrade | TakeOver | AskPorts | Taken | Failed | UpgradeEnded | Offer | Refused | Handed | HandedAll
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(AnyMessage)


def encoded(message: AnyMessage) -> bytes:
    """Return a message as bytes."""
    return _ENCODER.encode(message)


def decoded(data: bytes) -> AnyMessage:
    """Return the message in `data`.

    Raises:
        msgspec.DecodeError: there is none.
    """
    message: AnyMessage = _DECODER.decode(data)
    return message
