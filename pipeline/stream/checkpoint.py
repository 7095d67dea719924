"""The checkpoint of a stream: its query, and for a directory the file sets of the batch in work.

A batch that was killed is repeated with the same file sets, so a table that already took its rows has the rows of the repeated batch.
Spark writes the checkpoint of a topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

import msgspec

from pipeline.errors import BadInputError
from pipeline.files import write_whole
from pipeline.storage.paths import AnyPath, read_if_there

METADATA: Final = "metadata"
"""The file in which Spark notes a query, too."""
PLANNED: Final = "planned.json"


class _Metadata(msgspec.Struct, frozen=True):
    """A query. Spark's own file has only its id."""

    id: str
    output: str | None = None


class Planned(msgspec.Struct, frozen=True):
    """A batch, and the paths of its manifests below the metering directory."""

    batch_id: int
    file_sets: tuple[str, ...]


def query_of(checkpoint: AnyPath) -> str | None:
    """Return the query of a checkpoint; None: it has not been used.

    Raises:
        BadInputError: the file of the query is damaged.
    """
    found = _metadata_of(checkpoint)
    return None if found is None else found.id


def output_of(checkpoint: AnyPath) -> str | None:
    """Return the output that a query began with; None: Spark began it, or it has not begun."""
    found = _metadata_of(checkpoint)
    return None if found is None else found.output


def begin_query(checkpoint: AnyPath, output: str) -> str:
    """Return the query of a checkpoint; a new checkpoint gets one for this output."""
    known = query_of(checkpoint)
    if known is not None:
        return known
    metadata = _Metadata(str(uuid.uuid4()), output)
    write_whole(checkpoint / METADATA, msgspec.json.encode(metadata).decode() + "\n")
    return metadata.id


def _metadata_of(checkpoint: AnyPath) -> _Metadata | None:
    text = read_if_there(checkpoint / METADATA)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_Metadata)
    except msgspec.MsgspecError as error:
        raise BadInputError(f"{checkpoint / METADATA}: not of a checkpoint ({error}); name an empty --out and --checkpoint") from error


def put_planned(checkpoint: AnyPath, batch_id: int, file_sets: Sequence[str]) -> None:
    """Note the batch before its first row is written."""
    write_whole(checkpoint / PLANNED, msgspec.json.encode(Planned(batch_id, tuple(file_sets))).decode() + "\n")


def planned_of(checkpoint: AnyPath, batch_id: int) -> tuple[str, ...]:
    """Return the file sets that a batch began with; (): it has not begun.

    Raises:
        BadInputError: the file is damaged.
    """
    text = read_if_there(checkpoint / PLANNED)
    if text is None:
        return ()
    try:
        planned = msgspec.json.decode(text, type=Planned)
    except msgspec.MsgspecError as error:
        raise BadInputError(f"{checkpoint / PLANNED}: not of a checkpoint ({error}); name an empty --out and --checkpoint") from error
    return planned.file_sets if planned.batch_id == batch_id else ()
