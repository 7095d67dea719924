"""Verdicts of the file sets that a stream has landed, by batch. Rules over whole runs need those of earlier batches too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from metering_format.manifest import Manifest
from pipeline.files import write_whole
from pipeline.storage.paths import AnyPath
from pipeline.stream.batch_files import BatchFiles
from pipeline.validation.file_set_verdict import FileSetVerdict

JUDGED: Final = "_judged"


class Judged(msgspec.Struct, frozen=True):
    """A file set with its verdict."""

    manifest: Manifest
    verdict: FileSetVerdict


def judged_files(out: AnyPath) -> BatchFiles[list[Judged]]:
    """Return the files of the verdicts."""
    return BatchFiles(out, JUDGED, list[Judged], "verdicts of `sluice meter stream`")


def put_judged(out: AnyPath, batch_id: int, judged: Sequence[Judged]) -> None:
    """Write the verdicts of a batch, before its marker."""
    write_whole(judged_files(out).path(batch_id), msgspec.json.encode(judged).decode())


def judged_so_far(out: AnyPath) -> Iterator[tuple[int, list[Judged]]]:
    """Yield the verdicts of each batch, in order. Batches of earlier versions have none.

    Raises:
        BadInputError: a file cannot be read.
    """
    return judged_files(out).read()
