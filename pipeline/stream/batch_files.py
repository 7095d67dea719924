"""Files with a text of JSON for each batch of a stream: markers, and verdicts. Those of many batches are merged, so that a call reads few.

A batch begins with a file of its own, `N.json`. When all batches of a block of 100 count, one file has the texts of the block,
`FIRST-LAST.json.zst`, a line for each batch; blocks of 10,000 follow. The merged file is whole before the files are removed that it
replaces. So each batch has a text at any time, and where two files have it, it is the same.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from pipeline.errors import BadInputError, IncompleteError
from pipeline.files import write_bytes
from pipeline.storage.paths import AnyPath, StorePath, expect_files, listed_below, read_if_there

Content = TypeVar("Content")

WIDTHS: Final = (100, 10_000)
"""Numbers of batches of a block, each a hundred of those before."""
FILES_MAX: Final = 1_000
"""Highest number of files that one batch merges or removes: an output of an earlier version may have 100,000 of them."""
BYTES_MAX: Final = 64 * 2**20
"""Highest length of the files that become one."""
_NAME: Final = re.compile(r"(\d{12})(?:-(\d{12}))?\.json(?:\.zst)?")
_COMPRESSION: Final = "zstd"
_PIECE_BYTES: Final = 2**20
"""Bytes that are decompressed together."""


class _Line(msgspec.Struct, Generic[Content]):
    batch_id: int
    content: Content


class _File(NamedTuple):
    """A file, and the first and the last batch that it may have."""

    first: int
    last: int
    path: AnyPath


class BatchFiles(Generic[Content]):
    """One folder of such files.

    Args:
        out: the output of the stream.
        folder: name of the folder in it.
        content: the type of a text.
        what: what a file is, for messages.
    """

    def __init__(self, out: AnyPath, folder: str, content: Any, what: str) -> None:
        self._out, self._folder, self._what = out, folder, what
        self._decoder: msgspec.json.Decoder[_Line[Content]] = msgspec.json.Decoder(_Line[content])

    def path(self, batch_id: int) -> AnyPath:
        """Return the path of the file that a batch begins with."""
        return self._out / self._folder / f"{batch_id:012d}.json"

    def has(self, batch_id: int) -> bool:
        """Whether the folder has a batch now, merged or not."""
        merged = (self._merged_path(batch_id // width * width, width) for width in WIDTHS)
        return any(read_if_there(path) is not None for path in (self.path(batch_id), *merged))

    def read(self) -> Iterator[tuple[int, Content]]:
        """Yield the text of each batch, in order. One text is in memory at a time.

        Raises:
            BadInputError: a file is damaged, or an object store refuses.
            IncompleteError: another stream has merged files meanwhile.
        """
        files, _ = _without_replaced(self._files())
        expect_files(file.path for file in files)
        for file in files:
            yield from self._texts_of(file)

    def merge(self, next_id: int) -> bool:
        """Merge the files of blocks all of whose batches are before `next_id`; return whether it has reached its limit.

        Raises:
            BadInputError: a file is damaged, or an object store refuses.
            OSError: a file cannot be written.
        """
        _, replaced = _without_replaced(self._files())
        _remove(replaced[:FILES_MAX])
        room = FILES_MAX - len(replaced)
        for width in WIDTHS:
            files, _ = _without_replaced(self._files())
            for block in _due(files, width, next_id):
                if len(block) > room:
                    return True
                self._merge(block, width)
                room -= len(block)
        return room < 0

    def _merge(self, block: list[_File], width: int) -> None:
        first = block[0].first // width * width
        path = self._merged_path(first, width)
        expect_files(file.path for file in block)
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, _COMPRESSION) as lines:
            for file in block:
                for line in self._lines_of(file):
                    lines.write(line)
        _write(path, sink.getvalue().to_pybytes())
        _remove(block)

    def _files(self) -> list[_File]:
        found = []
        for path in listed_below(self._out, self._folder).glob("*.json*"):
            if match := _NAME.fullmatch(path.name):
                first, last = match.groups()
                found.append(_File(int(first), int(last or first), path))
        return sorted(found, key=lambda file: (file.first, -file.last))

    def _merged_path(self, first: int, width: int) -> AnyPath:
        return self._out / self._folder / f"{first:012d}-{first + width - 1:012d}.json.zst"

    def _texts_of(self, file: _File) -> Iterator[tuple[int, Content]]:
        try:
            for line in self._lines_of(file):
                found = self._decoder.decode(line)
                yield found.batch_id, found.content
        except msgspec.MsgspecError as error:
            raise self._damaged(file, error) from error

    def _lines_of(self, file: _File) -> Iterator[bytes]:
        """Yield a line for each batch of a file."""
        try:
            data = file.path.read_bytes()
            if file.path.suffix != ".zst":
                yield b'{"batch_id":%d,"content":%s}\n' % (file.first, msgspec.json.format(data, indent=-1))
                return
            line = b""
            with pa.CompressedInputStream(pa.BufferReader(data), _COMPRESSION) as stream:
                for line in io.BufferedReader(stream, _PIECE_BYTES):
                    if line.endswith(b"\n"):
                        yield line
            if not line.endswith(b"\n"):
                raise OSError("its end is missing")
        except FileNotFoundError as error:
            raise IncompleteError(f"{file.path}: another stream has merged it meanwhile; run one stream at a time") from error
        except (OSError, msgspec.MsgspecError) as error:
            raise self._damaged(file, error) from error

    def _damaged(self, file: _File, error: Exception) -> BadInputError:
        return BadInputError(f"{file.path}: not {self._what} ({error}); name an empty --out and --checkpoint")


def _without_replaced(files: Iterable[_File]) -> tuple[list[_File], list[_File]]:
    """Return the files that count, and those that a merged one has replaced."""
    kept: list[_File] = []
    replaced: list[_File] = []
    for file in files:
        (replaced if kept and file.last <= kept[-1].last else kept).append(file)
    return kept, replaced


def _due(files: Iterable[_File], width: int, next_id: int) -> Iterator[list[_File]]:
    """Yield the files of each block that become one. Larger blocks wait until smaller ones are merged."""
    for number, group in groupby(files, key=lambda file: file.first // width):
        block = list(group)
        is_whole = (number + 1) * width <= next_id
        if is_whole and 1 < len(block) <= WIDTHS[0] and sum(file.path.stat().st_size for file in block) <= BYTES_MAX:
            yield block


def _write(path: AnyPath, data: bytes) -> None:
    """Write a file that is whole and on disk when this returns."""
    write_bytes(path, data)
    if isinstance(path, StorePath):
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _remove(files: Iterable[_File]) -> None:
    for file in files:
        if isinstance(file.path, Path):
            file.path.unlink(missing_ok=True)
        else:
            file.path.unlink()
