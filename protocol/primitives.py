"""Reader and writers of Kafka's primitive types with bounds checks, for everything that is not on the hot path."""

from struct import Struct

from protocol.errors import BadResponseError, ProtocolError
from protocol.limits import MAX_STRING_BYTES

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")

INT32_MAX = 2_147_483_647
_VARINT_BYTES_MAX = 5

Buffer = bytes | bytearray | memoryview


class IncompleteError(Exception):
    """The frame continues, but the bytes have not arrived. Caught within `protocol`."""


class Reader:
    """Reads values one after the other, never beyond the end of its frame.

    Every length is compared with the bytes left before a value is made of it.

    Args:
        data: the bytes, which may contain other frames too.
        at: offset of the next value.
        end: end of the frame, which may be beyond the end of `data`.
        error: class of the exception for invalid bytes.
    """

    __slots__ = ("_available", "_data", "_error", "at", "end")

    def __init__(self, data: Buffer, at: int, end: int, error: type[ProtocolError] = BadResponseError) -> None:
        self._data = data
        self._available = min(end, len(data))
        self._error = error
        self.at = at
        self.end = end

    def skip(self, count: int) -> int:
        """Advance by `count` bytes and return the offset of the first of them."""
        at = self.at
        after = at + count
        if count < 0 or after > self.end:
            raise self._error(f"{count} bytes at offset {at} go past the end at {self.end}")
        if after > self._available:
            raise IncompleteError
        self.at = after
        return at

    def left(self) -> int:
        """Return the number of bytes between here and the end of the frame."""
        return self.end - self.at

    def int16(self) -> int:
        """Read an int16."""
        value: int = INT16.unpack_from(self._data, self.skip(2))[0]
        return value

    def int32(self) -> int:
        """Read an int32."""
        value: int = INT32.unpack_from(self._data, self.skip(4))[0]
        return value

    def raw(self, count: int) -> bytes:
        """Read `count` bytes."""
        at = self.skip(count)
        return bytes(self._data[at : at + count])

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 31 bits. Source: Kafka's `ByteUtils.readUnsignedVarint`."""
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self._data[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise self._error("varint of more than 5 bytes")
        if value > INT32_MAX:
            raise self._error(f"varint {value} is above 2^31-1")
        return value

    def length(self, *, compact: bool) -> int:
        """Read the length of bytes or of an array; -1 is null."""
        value = self.uvarint() - 1 if compact else self.int32()
        return self._checked(value)

    def string_length(self, *, compact: bool) -> int:
        """Read the length of a string; -1 is null."""
        value = self._checked(self.uvarint() - 1 if compact else self.int16())
        if value > MAX_STRING_BYTES:
            raise self._error(f"string of {value} bytes")
        return value

    def _checked(self, value: int) -> int:
        if value < -1 or value > self.left():
            raise self._error(f"length {value}, {self.left()} bytes left")
        return value

    def nullable_string_bytes(self, *, compact: bool) -> bytes | None:
        """Read the bytes of a string, or None when it is null."""
        count = self.string_length(compact=compact)
        return None if count < 0 else self.raw(count)

    def nullable_string(self, *, compact: bool) -> str | None:
        """Read a string, or None. Invalid UTF-8 becomes U+FFFD, as in Kafka."""
        value = self.nullable_string_bytes(compact=compact)
        return None if value is None else value.decode("utf-8", "replace")

    def string(self, *, compact: bool) -> str:
        """Read a string; null reads as empty."""
        return self.nullable_string(compact=compact) or ""

    def skip_tag_section(self, *, max_fields: int = INT32_MAX, max_field_bytes: int = INT32_MAX) -> None:
        """Skip a tag section."""
        count = self.uvarint()
        if count > max_fields:
            raise self._error(f"{count} tagged fields, limit {max_fields}")
        for _ in range(count):
            self.uvarint()
            size = self.uvarint()
            if size > max_field_bytes:
                raise self._error(f"tagged field of {size} bytes, limit {max_field_bytes}")
            self.skip(size)


def uvarint(value: int) -> bytes:
    """Return an unsigned varint in its shortest form."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def uvarint_bytes(value: int) -> int:
    """Return the length of `value` as an unsigned varint in its shortest form."""
    return max(1, (value.bit_length() + 6) // 7)


def string(value: str, *, compact: bool) -> bytes:
    """Return the bytes of a string that is not null."""
    encoded = value.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(encoded)} bytes, limit {MAX_STRING_BYTES}")
    return (uvarint(len(encoded) + 1) if compact else INT16.pack(len(encoded))) + encoded


def with_length(body: bytes | bytearray) -> bytes:
    """Return a frame with its 4-byte length in front."""
    return INT32.pack(len(body)) + body
