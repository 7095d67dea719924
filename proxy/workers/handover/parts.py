"""What changes hands, cut into messages that a socket takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from proxy.net.accept.client_listeners import Port
from proxy.workers.handover.meeting import Part
from proxy.workers.handover.messages import BucketState, Handed

PORTS_MAX: Final = 100
OTHERS_MAX: Final = 200
"""Of one message: tags of a bucket are names of up to 256 bytes."""

Broker = tuple[int, int, str, int]
"""Number of the route, node id, host, port."""

T = TypeVar("T")


def parts_of(ports: Sequence[Port], brokers: Sequence[Broker], buckets: Sequence[BucketState] = ()) -> list[Part]:
    """Return the messages with their descriptors."""
    parts: list[Part] = [
        (Handed([(port.listener, port.address) for port in some], [], []), [port.sock.fileno() for port in some])
        for some in _cut(ports, PORTS_MAX)
    ]
    parts += [(Handed([], list(some), []), ()) for some in _cut(brokers, OTHERS_MAX)]
    parts += [(Handed([], [], list(some)), ()) for some in _cut(buckets, OTHERS_MAX)]
    return parts


def _cut(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
