"""Compiles the field tables of `apis.json` into functions that walk over a message.

A compiled walker takes the bytes and an offset and returns the offset after the fields it skipped. It is fast because it checks
little: a length that is too large shows as IndexError or struct.error at the next read, or as an offset beyond the end of the
frame. The caller runs it inside `reading` and compares the result with the end. Offsets never decrease, counts never size
an allocation, and every element of an array has at least one byte, so a walk ends at the latest with the available bytes.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from protocol.api_keys import TABLE
from protocol.errors import BadResponseError, ProtocolError
from protocol.primitives import INT16, INT32, INT32_MAX, Buffer

Skip = Callable[[Buffer, int], int]

_FIXED_BYTES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16}


class Field(NamedTuple):
    """A field of one version of a message. `fields` are those of a struct; `tag` is None for a field without a tag."""

    name: str
    type: str
    is_array: bool
    fields: tuple["Field", ...]
    tag: int | None
    nullable: bool = False

    @property
    def fixed_bytes(self) -> int | None:
        """The length of a value of fixed length, or None."""
        return None if self.is_array else _FIXED_BYTES.get(self.type)


class Layout(NamedTuple):
    """The fields of one version of a message in wire order, and whether it is flexible."""

    fields: tuple[Field, ...]
    flexible: bool

    def field(self, name: str) -> Field:
        """Return the top-level field `name`."""
        return next(field for field in self.fields if field.name == name)

    def before(self, name: str) -> tuple[Field, ...]:
        """Return the untagged fields before `name`: all of them when it is tagged or absent."""
        ordinary = tuple(field for field in self.fields if field.tag is None)
        names = [field.name for field in ordinary]
        return ordinary[: names.index(name)] if name in names else ordinary

    def has(self, name: str) -> bool:
        """Return whether this version has the top-level field `name`."""
        return any(field.name == name for field in self.fields)


def in_range(versions: str | None, version: int) -> bool:
    """Return whether `version` is in a range in the notation of Kafka's message definitions: "3", "0-8", "9+" or "none"."""
    if versions is None or versions == "none":
        return False
    first, _, last = versions.removesuffix("+").partition("-")
    if versions.endswith("+"):
        return version >= int(first)
    return int(first) <= version <= int(last or first)


def layout_of(key: int, kind: str, version: int) -> Layout:
    """Return the layout of a "request" or "response". When both releases of Kafka have the version, the newer one's layout is used."""
    for entry in TABLE["layouts"]:
        if entry["key"] == key and entry["type"] == kind and in_range(entry["versions"], version):
            return layout_from(entry, version)
    raise KeyError(f"no layout of {kind} {key} v{version}")


def layout_from(entry: dict[str, Any], version: int) -> Layout:
    """Return the layout of `version` from a table entry with `fields` and `flexible`."""
    return Layout(_fields_of(entry["fields"], version), in_range(entry["flexible"], version))


def _fields_of(table: list[dict[str, Any]], version: int) -> tuple[Field, ...]:
    return tuple(_field_of(row, version) for row in table if in_range(row["v"], version))


def _field_of(row: dict[str, Any], version: int) -> Field:
    is_array = row["t"].startswith("[]")
    return Field(
        name=row["n"],
        type=row["t"].removeprefix("[]"),
        is_array=is_array,
        fields=_fields_of(row.get("f", []), version),
        tag=row["tag"] if in_range(row.get("tagv"), version) else None,
        nullable=in_range(row.get("null"), version),
    )


@contextmanager
def reading(error: type[ProtocolError] = BadResponseError) -> Iterator[None]:
    """Raise `error` in place of the exceptions that a compiled walker raises on invalid bytes."""
    try:
        yield
    except (IndexError, struct.error) as cause:
        raise error("the message ends before its last field") from cause


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """Return the unsigned varint at `at` and the offset behind it."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > INT32_MAX:
                break
            return value, at + 1
    raise BadResponseError("varint of more than 31 bits")


def _length(count: int) -> int:
    if count < -1:
        raise BadResponseError(f"length {count}")
    return max(count, 0)


def skip_string(data: Buffer, at: int) -> int:
    """Skip a string with an int16 length."""
    return at + 2 + _length(INT16.unpack_from(data, at)[0])


def skip_bytes(data: Buffer, at: int) -> int:
    """Skip bytes or records with an int32 length."""
    return at + 4 + _length(INT32.unpack_from(data, at)[0])


def skip_compact(data: Buffer, at: int) -> int:
    """Skip a compact string, compact bytes or compact records: a varint of length + 1."""
    length = data[at]
    if length < 0x80:
        return at + (length or 1)
    length, at = read_uvarint(data, at)
    return at + max(length - 1, 0)


def skip_tags(data: Buffer, at: int) -> int:
    """Skip a tag section."""
    count = data[at]
    if count == 0:
        return at + 1
    count, at = read_uvarint(data, at)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
    return at


def read_count(data: Buffer, at: int, *, compact: bool) -> tuple[int, int]:
    """Return the number of elements of the array at `at` (null has none) and the offset of the first."""
    if compact:
        count, at = read_uvarint(data, at)
        return max(count - 1, 0), at
    return _length(INT32.unpack_from(data, at)[0]), at + 4


def skip_fields(fields: Sequence[Field], *, flexible: bool) -> Skip:
    """Compile a walker over consecutive untagged fields; adjacent fields of fixed length are skipped together."""
    steps: list[Skip] = []
    fixed = 0
    for field in fields:
        if field.fixed_bytes is not None:
            fixed += field.fixed_bytes
            continue
        steps += [*_fixed_step(fixed), skip_field(field, flexible=flexible)]
        fixed = 0
    return _chain([*steps, *_fixed_step(fixed)])


def skip_struct(fields: Sequence[Field], *, flexible: bool) -> Skip:
    """Compile a walker over a struct: its untagged fields and, in flexible versions, its tag section."""
    ordinary = skip_fields([field for field in fields if field.tag is None], flexible=flexible)
    return _chain([ordinary, skip_tags]) if flexible else ordinary


def skip_field(field: Field, *, flexible: bool) -> Skip:
    """Compile a walker over one untagged field."""
    if field.is_array:
        return _skip_array(field, flexible=flexible)
    return _skip_value(field, flexible=flexible)


def _skip_value(field: Field, *, flexible: bool) -> Skip:
    fixed = _FIXED_BYTES.get(field.type)
    if fixed is not None:
        return _fixed_step(fixed)[0]
    if field.fields:
        return skip_struct(field.fields, flexible=flexible)
    if flexible:
        return skip_compact
    return skip_string if field.type == "string" else skip_bytes


def _skip_array(field: Field, *, flexible: bool) -> Skip:
    fixed = _element_bytes(field, flexible=flexible)
    if fixed is not None:
        # One multiplication: a loop that reads nothing would not notice the end of the bytes.
        return _skip_array_of_fixed(fixed, flexible=flexible)
    element = _skip_value(field, flexible=flexible)

    def skip(data: Buffer, at: int) -> int:
        count, at = read_count(data, at, compact=flexible)
        for _ in range(count):
            at = element(data, at)
        return at

    return skip


def _element_bytes(field: Field, *, flexible: bool) -> int | None:
    """Return the length of an element of fixed length, or None."""
    if field.type in _FIXED_BYTES:
        return _FIXED_BYTES[field.type]
    lengths = [inner.fixed_bytes for inner in field.fields]
    known = [length for length in lengths if length is not None]
    return sum(known) if lengths and len(known) == len(lengths) and not flexible else None


def _skip_array_of_fixed(element_bytes: int, *, flexible: bool) -> Skip:
    def skip(data: Buffer, at: int) -> int:
        count, at = read_count(data, at, compact=flexible)
        return at + count * element_bytes

    return skip


def _fixed_step(count: int) -> list[Skip]:
    return [lambda _, at: at + count] if count else []


def _chain(steps: Sequence[Skip]) -> Skip:
    if len(steps) == 1:
        return steps[0]
    sequence = tuple(steps)

    def skip(data: Buffer, at: int) -> int:
        for step in sequence:
            at = step(data, at)
        return at

    return skip
