"""Record batches (magic 2) that a real broker accepts, and a walk over those that it returns."""

import struct
import time

import crc32c

from bench.harness.frames import uvarint

BATCH_HEAD_BYTES = 61
CRC_AT, AFTER_CRC = 17, 21


def record_batch(value: bytes) -> bytes:
    """Return an uncompressed batch of one record without key and headers, with the present time: a broker soon deletes records from
    1970.
    """
    now_ms = int(time.time() * 1_000)
    body = b"\0" + _zigzag(0) + _zigzag(0) + _zigzag(-1) + _zigzag(len(value)) + value + _zigzag(0)
    record = _zigzag(len(body)) + body
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    head = struct.pack(">qiibI", 0, 4 + 1 + 4 + len(checked), -1, 2, crc32c.crc32c(checked))
    return head + checked


def _zigzag(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def record_values(batch: bytes | memoryview) -> list[bytes]:
    """Return the values of the records of one uncompressed batch."""
    values, at = [], BATCH_HEAD_BYTES
    while at < len(batch):
        length, at = _read_zigzag(batch, at)
        end = at + length
        at += 1
        for _ in range(2):  # timestamp and offset deltas
            _, at = _read_zigzag(batch, at)
        key_length, at = _read_zigzag(batch, at)
        at += max(key_length, 0)
        value_length, at = _read_zigzag(batch, at)
        values.append(bytes(batch[at : at + max(value_length, 0)]))
        at = end
    return values


def _read_zigzag(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def whole_batches(records: bytes | memoryview) -> list[tuple[int, int, int]]:
    """Yield (first byte, length, next offset) of each complete batch; the last one in an answer may be truncated."""
    found, at = [], 0
    while at + BATCH_HEAD_BYTES <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        (last_delta,) = struct.unpack_from(">i", records, at + 23)
        size = 12 + length
        if at + size > len(records):
            break
        found.append((at, size, base_offset + last_delta + 1))
        at += size
    return found
