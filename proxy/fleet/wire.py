"""The messages of a fleet, byte for byte.

A message is: a header; a description of the sender in MessagePack, which may be empty; entries that name groups; entries with totals;
entries with throttles; entries with connections (`proxy.fleet.connections`); entries with queues; and the HMAC-SHA256 of all of this.
Numbers are little-endian.
The first 8 bytes of the header have the same meaning in all versions.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from operator import mul
from struct import Struct
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from proxy.fleet.connections.entries import NO_CONNECTIONS, Connections
from proxy.fleet.keys import FleetKeys
from proxy.shared_usage.segment import FETCH_TIMES

MAGIC: Final = b"SLFT"
VERSION: Final = 1
_HEADER: Final = Struct("<4sHHQQQQqIIIIII")
"""Magic, version, reserved, fleet, incarnation, sequence, quotas, time; bytes of the description, numbers of the five kinds of entries."""
HMAC_BYTES: Final = 32
IDS_MAX: Final = 1 << 20
"""Ids of groups are below this number."""

NAME: Final = np.dtype([("id", "<u4"), ("high", "<i8"), ("low", "<i8"), ("base", "<i8")])
"""A group's id in later totals of this sender, two words of its digest, and its total before this message."""
TOTAL: Final = np.dtype([("id", "<u4"), ("flight", "<u4"), ("total", "<i8")])
"""A group's id; its usage in flight in KiB, shifted left by one, and whether it had a throttle round; its total."""

THROTTLE: Final = np.dtype([("id", "<u4"), ("kind", "<u4"), ("end", "<i8")])
"""A group's id; what happened to a throttle that a departed connection left (`proxy.fleet.throttles`); its end by the clock of the bus."""

QUEUE: Final = np.dtype([("id", "<u4"), ("count", "<u4"), ("front", "<i8"), ("after", "<u2", (FETCH_TIMES,))])
"""A group's id; the number of its fetches that wait at this sender; when the oldest was read, by the clock of the bus (0: none waits); and
the times of the fetches in the middle of each of `FETCH_TIMES` equal parts of the queue, in ms after the oldest."""

Entries = npt.NDArray[np.void]
NO_QUEUES: Final[Entries] = np.zeros(0, QUEUE)


class WireError(Exception):
    """A message that cannot be used; the text says why."""


class OtherFleetError(WireError):
    """A message of another fleet on the same bus."""


class OtherVersionError(WireError):
    """A message of a member with another version of the messages."""

    def __init__(self, version: int) -> None:
        super().__init__(f"a member sends messages of version {version}, and this program reads version {VERSION}: upgrade the older one")
        self.version = version


class ForgedError(WireError):
    """A message without a valid HMAC."""


class About(msgspec.Struct, frozen=True):
    """The description of a member.

    Attributes:
        member: its name.
        version: version of the program.
        enforcement: mode of enforcement.
        connections: number that depends on its limits on connections; 0: it does not share connections.
    """

    member: str
    version: str
    enforcement: str
    connections: int = 0


class Message(NamedTuple):
    """One message.

    Attributes:
        incarnation: number of the sender's segment, which begins with totals of 0.
        sequence: increases with each message of an incarnation.
        quotas: number that depends on the sender's quotas; equal quotas have equal numbers.
        time_ms: when it was sent, by the clock of the bus as the sender knows it; 0: the sender does not know it yet.
        about: the description of the sender; None: unchanged.
        names, totals, throttles, connections, queues: arrays of `NAME`, `TOTAL`, `THROTTLE`, `CONNECTION` and `QUEUE`.
    """

    incarnation: int
    sequence: int
    quotas: int
    time_ms: int
    about: About | None
    names: Entries
    totals: Entries
    throttles: Entries
    connections: Connections = NO_CONNECTIONS
    queues: Entries = NO_QUEUES


NO_NAMES: Final[Entries] = np.zeros(0, NAME)
NO_TOTALS: Final[Entries] = np.zeros(0, TOTAL)
NO_THROTTLES: Final[Entries] = np.zeros(0, THROTTLE)
_NOTHING: Final[tuple[Entries, ...]] = (NO_NAMES, NO_TOTALS, NO_THROTTLES, NO_CONNECTIONS, NO_QUEUES)
"""No entries of each kind, in the order of a message."""
_ENTRY_BYTES: Final = tuple(kind.itemsize for kind in _NOTHING)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(About)


def size_of(names: int, totals: int, throttles: int, connections: int = 0, queues: int = 0) -> int:
    """Return the size of a message without a description, in bytes."""
    counts = (names, totals, throttles, connections, queues)
    entries: int = sum(map(mul, counts, _ENTRY_BYTES))
    return _HEADER.size + entries + HMAC_BYTES


def encoded(message: Message, keys: FleetKeys) -> bytes:
    """Return the bytes of a message."""
    about = b"" if message.about is None else _ENCODER.encode(message.about)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        0,
        keys.fleet,
        message.incarnation,
        message.sequence,
        message.quotas,
        message.time_ms,
        len(about),
        len(message.names),
        len(message.totals),
        len(message.throttles),
        len(message.connections),
        len(message.queues),
    )
    entries = (message.names, message.totals, message.throttles, message.connections, message.queues)
    data = b"".join((header, about, *(some.tobytes() for some in entries)))
    return data + hmac.digest(keys.messages, data, sha256)


def decoded(data: bytes, keys: FleetKeys) -> Message:
    """Return the message of these bytes.

    Raises:
        OtherFleetError, OtherVersionError, ForgedError, WireError: it is not a valid message of this fleet and version.
    """
    if len(data) < 8 or data[:4] != MAGIC:
        raise WireError("the bus contains what is no message of a fleet")
    version = int.from_bytes(data[4:6], "little")
    if version != VERSION:
        raise OtherVersionError(version)
    if len(data) < _HEADER.size + HMAC_BYTES:
        raise WireError("a message is too short")
    _, _, _, fleet, incarnation, sequence, quotas, time_ms, about_bytes, *counts = _HEADER.unpack_from(data)
    if fleet != keys.fleet:
        raise OtherFleetError("a message belongs to another fleet")
    signed = memoryview(data)[:-HMAC_BYTES]
    if not hmac.compare_digest(hmac.digest(keys.messages, signed, sha256), data[-HMAC_BYTES:]):
        raise ForgedError("a message has no valid HMAC: its sender has another secret, or it was changed")
    if len(data) != size_of(*counts) + about_bytes:
        raise WireError("a message has another length than its header says")
    at = _HEADER.size
    try:
        about = _DECODER.decode(signed[at : at + about_bytes]) if about_bytes else None
    except msgspec.MsgspecError as error:
        raise WireError(f"a message has a description that cannot be read: {error}") from None
    names, totals, throttles, connections, queues = _arrays(data, at + about_bytes, counts)
    for some in (names, totals, throttles, queues):
        if len(some) and some["id"].max() >= IDS_MAX:
            raise WireError("a message has an id that is too large")
    return Message(incarnation, sequence, quotas, time_ms, about, names, totals, throttles, connections, queues)


def _arrays(data: bytes, at: int, counts: list[int]) -> list[Entries]:
    """Return the arrays of all kinds of entries, which begin at `at`."""
    found: list[Entries] = []
    for nothing, count in zip(_NOTHING, counts, strict=True):
        found.append(np.frombuffer(data, nothing.dtype, count, at) if count else nothing)
        at += count * nothing.itemsize
    return found
