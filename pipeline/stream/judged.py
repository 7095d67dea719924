"""Verdicts of the file sets that a stream has landed, one file per batch. Rules over whole runs need those of earlier batches too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError
from pipeline.files import write_whole
from pipeline.storage.paths import AnyPath, StorePath, expect_files
from pipeline.validation.file_set_verdict import FileSetVerdict

JUDGED: Final = "_judged"


class Judged(msgspec.Struct, frozen=True):
    """A file set with its verdict."""

    manifest: Manifest
    verdict: FileSetVerdict


def put_judged(out: AnyPath, batch_id: int, judged: Sequence[Judged]) -> None:
    """Write the verdicts of a batch, before its marker."""
    write_whole(out / _name_of(batch_id), msgspec.json.encode(judged).decode())


def judged_so_far(out: AnyPath, batches: Iterable[int]) -> tuple[list[Judged], list[int]]:
    """Return the verdicts of all batches, and the batches of earlier versions, which have none.

    Raises:
        BadInputError: a file cannot be read.
    """
    names = {batch_id: _name_of(batch_id) for batch_id in batches}
    if isinstance(out, StorePath):
        out = out.with_sizes(dict.fromkeys(names.values(), 0))
    expect_files(out / name for name in names.values())
    judged: list[Judged] = []
    without: list[int] = []
    for batch_id, name in names.items():
        try:
            judged += msgspec.json.decode((out / name).read_bytes(), type=list[Judged])
        except FileNotFoundError:
            without.append(batch_id)
        except (OSError, msgspec.MsgspecError) as error:
            raise BadInputError(f"{out / name}: not the verdicts of a batch ({error}); name an empty --out and --checkpoint") from error
    return judged, without


def _name_of(batch_id: int) -> str:
    return f"{JUDGED}/{batch_id:012d}.json"
