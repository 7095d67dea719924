"""Shared by the Python stub broker and the Python load generator: reading template files and following frames."""

import struct
from pathlib import Path

from bench.harness.frames import Template

TEMPLATE_HEAD = struct.Struct("<hhiqi")
INT32 = struct.Struct(">i")


def read_templates(path: str) -> list[Template]:
    """Read what `frames.write_templates` wrote."""
    data, at, found = Path(path).read_bytes(), 0, []
    while at < len(data):
        key, version, prefix, filler, suffix = TEMPLATE_HEAD.unpack_from(data, at)
        at += TEMPLATE_HEAD.size
        found.append(Template(key, version, data[at : at + prefix], filler, data[at + prefix : at + prefix + suffix]))
        at += prefix + suffix
    return found


class FrameHeads:
    """Follows frames through a stream: it yields the first `head_bytes` of each and counts the rest."""

    __slots__ = ("_body_left", "_cut", "_head_bytes")

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._cut = b""
        self._body_left = 0

    def heads(self, chunk: bytes) -> tuple[list[bytes], int]:
        """Return the heads that begin in `chunk`, and the number of frames that end in it."""
        heads: list[bytes] = []
        ended = 0
        head_bytes = self._head_bytes
        at, body_left = 0, self._body_left
        if self._cut:
            chunk, self._cut = self._cut + chunk, b""
        length = len(chunk)
        while True:
            if body_left:
                if length - at < body_left:
                    self._body_left = body_left - (length - at)
                    return heads, ended
                at += body_left
                body_left = 0
                ended += 1
            if length - at < head_bytes:
                self._cut = chunk[at:]
                self._body_left = 0
                return heads, ended
            heads.append(chunk[at : at + head_bytes])
            body_left = INT32.unpack_from(chunk, at)[0] + 4 - head_bytes
            at += head_bytes
            ended += not body_left
