"""Splits the state that is handed over into messages that fit a socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from proxy.net.accept.client_listeners import Port
from proxy.workers.handover.handover_listener import Part
from proxy.workers.handover.messages import BucketState, Handed

PORTS_MAX: Final = 100
OTHERS_MAX: Final = 200
"""Maximum number of brokers or buckets in one message; a tag of a bucket is a name of up to 256 bytes."""

ADMIN_PORT: Final = ""
"""The name of the admin port among the ports that are handed over; no listener has it."""

Broker = tuple[int, int, str, int]
"""Route number, node id, host and port of a broker."""

T = TypeVar("T")


class KnownBrokers(NamedTuple):
    """The brokers that a process knows.

    Attributes:
        addresses: where they are, as far as clients or the cluster have said.
        reached: those that connections have reached, so that all traffic to their addresses counts for them.
    """

    addresses: Sequence[Broker] = ()
    reached: Sequence[Broker] = ()


def parts_of(ports: Sequence[Port], brokers: KnownBrokers, buckets: Sequence[BucketState] = ()) -> list[Part]:
    """Return the messages and their descriptors; only messages with ports have descriptors."""
    parts: list[Part] = [
        (Handed([(port.listener, port.address) for port in some], [], []), [port.sock.fileno() for port in some])
        for some in cut(ports, PORTS_MAX)
    ]
    parts += [(Handed([], list(some), []), ()) for some in cut(brokers.addresses, OTHERS_MAX)]
    parts += [(Handed([], [], [], list(some)), ()) for some in cut(brokers.reached, OTHERS_MAX)]
    parts += [(Handed([], [], list(some)), ()) for some in cut(buckets, OTHERS_MAX)]
    return parts


def cut(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Return slices of at most `size` items."""
    return (items[at : at + size] for at in range(0, len(items), size))
