"""Verdicts of the file sets that a stream has landed, one file per batch. Rules over whole runs need those of earlier batches too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError
from pipeline.files import write_whole
from pipeline.stream.ledger import batch_ids
from pipeline.validation.file_set_verdict import FileSetVerdict

JUDGED: Final = "_judged"


class Judged(msgspec.Struct, frozen=True):
    """A file set with its verdict."""

    manifest: Manifest
    verdict: FileSetVerdict


def put_judged(out: Path, batch_id: int, judged: Sequence[Judged]) -> None:
    """Write the verdicts of a batch, before its marker."""
    write_whole(_path_of(out, batch_id), msgspec.json.encode(judged).decode())


def judged_so_far(out: Path) -> tuple[list[Judged], list[int]]:
    """Return the verdicts of all batches, and the batches of earlier versions, which have none.

    Raises:
        BadInputError: a file cannot be read.
    """
    judged: list[Judged] = []
    without: list[int] = []
    for batch_id in batch_ids(out):
        path = _path_of(out, batch_id)
        try:
            judged += msgspec.json.decode(path.read_bytes(), type=list[Judged])
        except FileNotFoundError:
            without.append(batch_id)
        except (OSError, msgspec.MsgspecError) as error:
            raise BadInputError(f"{path}: not the verdicts of a batch ({error}); name an empty --out and --checkpoint") from error
    return judged, without


def _path_of(out: Path, batch_id: int) -> Path:
    return out / JUDGED / f"{batch_id:012d}.json"
