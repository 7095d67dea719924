"""The messages at the socket of a supervisor. The two sides may have different versions; `PROTOCOL` is the version of the messages."""

from __future__ import annotations

from typing import Final

import msgspec

from quota.connections.ip_connections import IpKey
from quota.sensor import RingState

PROTOCOL: Final = 2


class Message(msgspec.Struct, tag=True, array_like=True):
    """One message; its class is its tag."""


# --- from the process that connects


class AskUpgrade(Message):
    """Request to start the new version; the response is `UpgradeEnded`."""


class TakeOver(Message):
    """Request of the process `pid` to replace the process that answers; the response is `Offer` or `Refused`."""

    protocol: int
    pid: int


class ReportConnections(Message):
    """A worker without a supervisor of its own reports its open connections: `ConnectionsChanged` follow, the numbers first, then changes.

    The end of the connection means that the worker has ended. There is no response.
    """


class AskPorts(Message):
    """Request to stop accepting and to hand over; the responses are any number of `Handed`, then `HandedAll`."""


class Taken(Message):
    """The new supervisor accepts connections."""


class Failed(Message):
    """The new supervisor cannot start; one line for each problem."""

    lines: list[str]


# --- from the process that answers


class UpgradeEnded(Message):
    """The result of an upgrade: the id of the new process, or None and the reason in `problem`."""

    pid: int | None
    problem: str


class Offer(Message):
    """The process can be replaced. The descriptors are its listening socket, the segment of shared usage, and the lock if it holds it.

    Attributes:
        numbers: of the workers that continue to serve their connections.
    """

    numbers: list[int]


class Refused(Message):
    """The process cannot be replaced now, for the reason in `problem`."""

    problem: str


class BucketState(msgspec.Struct, array_like=True):
    """A token bucket of controller mutations.

    Attributes:
        key: tags of the quota group.
        num_samples, window_ms: settings of the bucket.
        bound: mutations per second.
        tokens: balance at `last_update_ms`, in mutations.
        last_update_ms: monotonic; all processes of a host have the same clock.
    """

    key: tuple[tuple[str, str], ...]
    num_samples: int
    window_ms: int
    bound: float
    tokens: float
    last_update_ms: int


class Handed(Message):
    """A part of the handover. The descriptors are the listening sockets of `ports`, in the same order.

    Attributes:
        ports: listener name and configured address of each.
        brokers: route number, node id, host and port of each.
        buckets: token buckets of controller mutations.
        reached: as `brokers`, those whose node id is certain since a connection has reached them. Older versions send none.
    """

    ports: list[tuple[str, str]]
    brokers: list[tuple[int, int, str, int]]
    buckets: list[BucketState]
    reached: list[tuple[int, int, str, int]] = []


class RateState(msgspec.Struct, array_like=True):
    """A rate of new connections: of a listener, of an address, or, if both are None, of the process.

    Attributes:
        ring: its samples; times are monotonic, and all processes of a host have the same clock.
    """

    listener: str | None
    address: IpKey | None
    ring: RingState


class HandedRates(Message):
    """A part of the handover.

    Attributes:
        rates: rates of new connections; those of addresses in the order of their last record.
        failed_logins: address, level and time (monotonic, in ms) of each bucket of failed logins.
    """

    rates: list[RateState] = []
    failed_logins: list[tuple[str, float, int]] = []


class ConnectionsChanged(Message):
    """Changes of the numbers of open connections. Before `HandedAll` the numbers themselves; after `Taken` the changes since then.

    Attributes:
        listeners: name of a listener, and how many connections more have a slot; negative: fewer.
        addresses: table and address, and how many connections more are admitted.
        principals: type and name, and how many connections more count against the limit of the principal.
    """

    listeners: list[tuple[str, int]] = []
    addresses: list[tuple[int, str, int]] = []
    principals: list[tuple[str, str, int]] = []


class HandedAll(Message):
    """The handover is complete."""


AnyMessage = (
    AskUpgrade
    | TakeOver
    | ReportConnections
    | AskPorts
    | Taken
    | Failed
    | UpgradeEnded
    | Offer
    | Refused
    | Handed
    | HandedRates
    | ConnectionsChanged
    | HandedAll
)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(AnyMessage)


def encoded(message: AnyMessage) -> bytes:
    """Return the encoded message."""
    return _ENCODER.encode(message)


def decoded(data: bytes) -> AnyMessage:
    """Return the decoded message.

    Raises:
        msgspec.DecodeError: `data` is not a message of this protocol version.
    """
    message: AnyMessage = _DECODER.decode(data)
    return message
