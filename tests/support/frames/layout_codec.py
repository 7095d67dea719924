"""Reads and writes complete messages by the tables of `apis.json`: a slow and plain model to compare the walkers with.

A struct is a dictionary by field name; tagged fields that are absent have no entry; the unknown tagged fields of a
flexible struct are under UNKNOWN as a list of (tag, bytes).
"""

import struct
from typing import Any

from protocol.layout import Field, Layout

UNKNOWN = "_unknown"
_NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d", "bool": ">?"}


def decode(layout: Layout, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """Return the message whose body begins at `at`, and the offset after it."""
    return _decode_struct(layout.fields, data, at, flexible=layout.flexible)


def encode(layout: Layout, value: dict[str, Any]) -> bytes:
    """Return the bytes of a message body."""
    return _encode_struct(layout.fields, value, flexible=layout.flexible)


def kafka_json(value: Any) -> Any:
    """Rename the fields of a decoded value as Kafka's own JSON converters do; unknown tagged fields are left out."""
    if isinstance(value, dict):
        return {name[0].lower() + name[1:]: kafka_json(item) for name, item in value.items() if name != UNKNOWN}
    if isinstance(value, list):
        return [kafka_json(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def uvarint(value: int) -> bytes:
    """Write an unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _decode_struct(fields: tuple[Field, ...], data: bytes, at: int, *, flexible: bool) -> tuple[dict[str, Any], int]:
    value: dict[str, Any] = {}
    for field in fields:
        if field.tag is None:
            value[field.name], at = _decode_field(field, data, at, flexible=flexible)
    if not flexible:
        return value, at
    value[UNKNOWN] = []
    count, at = read_uvarint(data, at)
    tagged = {field.tag: field for field in fields if field.tag is not None}
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if tag in tagged:
            value[tagged[tag].name], end = _decode_field(tagged[tag], data, at, flexible=True)
            assert end == at + size, f"tagged field {tag} has not the size that it claims"
        else:
            value[UNKNOWN].append((tag, data[at : at + size]))
        at += size
    return value, at


def _decode_field(field: Field, data: bytes, at: int, *, flexible: bool) -> tuple[Any, int]:
    if not field.is_array:
        return _decode_value(field, data, at, flexible=flexible)
    count, at = _decode_length(data, at, ">i", flexible=flexible)
    if count < 0:
        return None, at
    items = []
    for _ in range(count):
        item, at = _decode_value(field, data, at, flexible=flexible)
        items.append(item)
    return items, at


def _decode_value(field: Field, data: bytes, at: int, *, flexible: bool) -> tuple[Any, int]:
    if field.fields:
        return _decode_struct(field.fields, data, at, flexible=flexible)
    if field.type in _NUMBERS:
        return struct.unpack_from(_NUMBERS[field.type], data, at)[0], at + struct.calcsize(_NUMBERS[field.type])
    if field.type == "uuid":
        return data[at : at + 16], at + 16
    length, at = _decode_length(data, at, ">h" if field.type == "string" else ">i", flexible=flexible)
    if length < 0:
        return None, at
    raw = data[at : at + length]
    return raw.decode() if field.type == "string" else raw, at + length


def _decode_length(data: bytes, at: int, number: str, *, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, at = read_uvarint(data, at)
        return length - 1, at
    return struct.unpack_from(number, data, at)[0], at + struct.calcsize(number)


def _encode_struct(fields: tuple[Field, ...], value: dict[str, Any], *, flexible: bool) -> bytes:
    encoded = b"".join(_encode_field(field, value[field.name], flexible=flexible) for field in fields if field.tag is None)
    if not flexible:
        return encoded
    tagged = [
        (field.tag, _encode_field(field, value[field.name], flexible=True))
        for field in fields
        if field.tag is not None and field.name in value
    ]
    tagged = sorted([*tagged, *value.get(UNKNOWN, [])])
    return encoded + uvarint(len(tagged)) + b"".join(uvarint(tag) + uvarint(len(raw)) + raw for tag, raw in tagged)


def _encode_field(field: Field, value: Any, *, flexible: bool) -> bytes:
    if not field.is_array:
        return _encode_value(field, value, flexible=flexible)
    if value is None:
        return _encode_length(-1, ">i", flexible=flexible)
    return _encode_length(len(value), ">i", flexible=flexible) + b"".join(_encode_value(field, item, flexible=flexible) for item in value)


def _encode_value(field: Field, value: Any, *, flexible: bool) -> bytes:
    if field.fields:
        return _encode_struct(field.fields, value, flexible=flexible)
    if field.type in _NUMBERS:
        return struct.pack(_NUMBERS[field.type], value)
    if field.type == "uuid":
        return value
    number = ">h" if field.type == "string" else ">i"
    if value is None:
        return _encode_length(-1, number, flexible=flexible)
    raw = value.encode() if field.type == "string" else value
    return _encode_length(len(raw), number, flexible=flexible) + raw


def _encode_length(length: int, number: str, *, flexible: bool) -> bytes:
    return uvarint(length + 1) if flexible else struct.pack(number, length)
