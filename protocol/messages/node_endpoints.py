"""Addresses of changed leaders in the tail of newer responses (KIP-951), replaced while the response passes through.

The length of such a frame was sent before its tail arrived, so a tail is replaced by one of exactly the same length.
"""

from typing import NamedTuple

from protocol.api_keys import ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.layout import read_count, read_uvarint, reading, skip_compact, skip_tags
from protocol.messages.addresses import Resolve
from protocol.primitives import INT32, INT32_MAX, Buffer, string, uvarint, uvarint_bytes

NODE_ENDPOINTS_TAG = 0
PADDING_TAG = 101
"""Tag of the padding field; far from Kafka's own tags. Receivers skip unknown tags."""


class _Entry(NamedTuple):
    """One node endpoint; `rest` is its rack and its tag section, unparsed."""

    node_id: int
    host: str
    port: int
    rest: bytes


class _Tail(NamedTuple):
    """The end of a response: entries as an untagged field or as tagged field 0, other tagged fields, then the remaining bytes."""

    entries: list[_Entry]
    is_tagged: bool
    others: list[tuple[int, bytes]]
    trailing: bytes


def tail_has_endpoints(api: ApiVersion, tail: Buffer) -> bool:
    """Return whether the complete `tail` of a response holds node endpoints.

    Raises:
        BadResponseError: the tail does not match its version.
    """
    if len(tail) == 1 and tail[0] == 0 and api.key == ApiKey.FETCH:
        return False
    return bool(_read_tail(api, bytes(tail)).entries)


def blank_endpoints(api: ApiVersion, tail: bytes, resolve: Resolve) -> bytes:
    """Return a tail of exactly the same length with the addresses replaced.

    An unknown tagged field makes up for shorter addresses. When the new addresses do not fit, all entries are removed; an entry for
    which `resolve` returns None is removed, too. Clients then request metadata, as they do with brokers that send no endpoints.

    Raises:
        BadResponseError: the tail does not match its version.
    """
    read = _read_tail(api, tail)
    if not read.entries:
        return tail
    replaced = [entry for entry in (_replace(entry, resolve) for entry in read.entries) if entry is not None]
    if replaced == read.entries:
        return tail
    return _fitted(read._replace(entries=replaced), len(tail)) or _fitted(read._replace(entries=[]), len(tail)) or _refuse(tail)


def _replace(entry: _Entry, resolve: Resolve) -> _Entry | None:
    if entry.node_id < 0 and not entry.host:
        return entry
    address = resolve(entry.node_id, entry.host, entry.port)
    return None if address is None else entry._replace(host=address[0], port=address[1])


def _refuse(tail: bytes) -> bytes:
    raise BadResponseError(f"a tail of {len(tail)} bytes cannot be written without its addresses")


def _read_tail(api: ApiVersion, tail: bytes) -> _Tail:
    entries: list[_Entry] = []
    at = 0
    with reading():
        is_tagged = api.key != ApiKey.SHARE_FETCH
        if not is_tagged:
            entries, at = _read_entries(tail, at)
        others, end = _read_tags(tail, at)
        for value in [value for tag, value in others if is_tagged and tag == NODE_ENDPOINTS_TAG]:
            found, value_end = _read_entries(value, 0)
            if value_end != len(value):
                raise BadResponseError("the node endpoints do not fill their tagged field")
            entries += found
    if end > len(tail):
        raise BadResponseError("the tail goes past the end of its frame")
    kept = [(tag, value) for tag, value in others if not (is_tagged and tag == NODE_ENDPOINTS_TAG)]
    return _Tail(entries, is_tagged, kept, tail[end:])


def _read_entries(data: bytes, at: int) -> tuple[list[_Entry], int]:
    count, at = read_count(data, at, compact=True)
    entries: list[_Entry] = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(data, at)
        port_at = skip_compact(data, at + 4)
        _, host_at = read_uvarint(data, at + 4)
        (port,) = INT32.unpack_from(data, port_at)
        end = skip_tags(data, skip_compact(data, port_at + 4))
        entries.append(_Entry(node_id, data[host_at:port_at].decode("utf-8", "replace"), port, data[port_at + 4 : end]))
        at = end
    return entries, at


def _read_tags(data: bytes, at: int) -> tuple[list[tuple[int, bytes]], int]:
    fields: list[tuple[int, bytes]] = []
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if at + size > len(data):
            raise BadResponseError(f"tagged field of {size} bytes, {len(data) - at} left")
        fields.append((tag, data[at : at + size]))
        at += size
    return fields, at


def _fitted(tail: _Tail, length: int) -> bytes | None:
    """Return `tail` written and padded to `length` bytes; None when that is impossible."""
    written = _write(tail, tail.others)
    if len(written) == length:
        return written
    for *empty, tag in _padding_tags(tail.others):
        fields = [*tail.others, *((number, b"") for number in empty)]
        # Written with the field, which may make the field count one byte longer.
        bare = len(_write(tail, [*fields, (tag, b"")]))
        padding = _padding_bytes(length - bare)
        if padding is not None:
            return _write(tail, [*fields, (tag, bytes(padding))])
    return None


def _padding_tags(others: list[tuple[int, bytes]]) -> list[tuple[int, ...]]:
    """Return tags above all others, since Kafka orders them: the next one, one whose number takes a byte more, or two of them.

    One option is not enough: with a size of one byte, or of two, no field lengthens a tail by exactly 128 bytes more than an empty field.
    """
    lowest = max([PADDING_TAG, *(tag + 1 for tag, _ in others)])
    ways = [(lowest,), (1 << 7 * uvarint_bytes(lowest),), (lowest, lowest + 1)]
    return [tags for tags in ways if tags[-1] <= INT32_MAX]


def _padding_bytes(more: int) -> int | None:
    """Return the size of a field that makes a tail `more` bytes longer than an empty field does (its own length counted)."""
    for size_bytes in range(1, 4):
        size = more - (size_bytes - 1)
        if size >= 0 and uvarint_bytes(size) == size_bytes:
            return size
    return None


def _write(tail: _Tail, others: list[tuple[int, bytes]]) -> bytes:
    array = uvarint(len(tail.entries) + 1) + b"".join(
        INT32.pack(node_id) + string(host, compact=True) + INT32.pack(port) + rest for node_id, host, port, rest in tail.entries
    )
    if not tail.is_tagged:
        return array + _write_tags(others) + tail.trailing
    field = [(NODE_ENDPOINTS_TAG, array)] if tail.entries else []
    return _write_tags([*field, *others]) + tail.trailing


def _write_tags(fields: list[tuple[int, bytes]]) -> bytes:
    return uvarint(len(fields)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in fields)
